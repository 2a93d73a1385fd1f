"""Prometheus' recording and alert rules as code: vocabulary -> rules -> YAML, in observability/prometheus/rules.

`slo` holds the objectives, `promql` writes selections of the vocabulary, `rule` says what a rule is, `recording` which
shapes recordings take. `burning`, `requests`, `zoo`, `chat`, `releases` and `servers` are the rules, each area's in one
place; `groups` puts them together and `written` makes the files of them:

    python -m zooserve_observability.rules [--check]
"""

__all__: list[str] = []
