"""The policies of a Collector's tail_sampling: each has a name of its own, and what its type asks for."""

from collections.abc import Iterator

from zooserve_cli.stack.tree import Node
from zooserve_ensembles.checking.findings import Finding, Rule, Severity

__all__ = ["RULES", "policies_of", "policy_findings"]

POLICY = Rule(
    "collector-policy", Severity.ERROR, "A sampling policy lacks what its type asks for, or could never match"
)
RULES = (POLICY,)

_WITHOUT_SETTINGS = ("always_sample", "trace_flags")
_WITHIN = {"and": "and_sub_policy", "drop": "drop_sub_policy", "composite": "composite_sub_policy"}
_OF_ALL = ("name", "type")


def policies_of(processor: Node) -> Iterator[Node]:
    """Every policy of a tail_sampling processor, those within others too."""
    for policy in processor["policies"].elements:
        yield from _with_inner(policy)


def _with_inner(policy: Node) -> Iterator[Node]:
    yield policy
    for kind, key in _WITHIN.items():
        for inner in policy[kind][key].elements:
            yield from _with_inner(inner)
    if policy["not"]["not_sub_policy"].is_there:
        yield from _with_inner(policy["not"]["not_sub_policy"])


def policy_findings(processor: Node) -> Iterator[Finding]:
    """What is wrong with a processor's policies beyond their keys."""
    if not processor["policies"].elements:
        yield POLICY.at(processor.key_place, "tail_sampling has no policies: nothing would be kept")
    names: set[str] = set()
    for policy in policies_of(processor):
        name, kind = policy["name"].text, policy["type"].text
        if not name or name in names:
            yield POLICY.at(policy.place, f"each policy needs a name of its own; {name or 'this one'} is not")
        names.add(name)
        yield from _settings(policy, name, kind)


def _settings(policy: Node, name: str, kind: str) -> Iterator[Finding]:
    if not kind:
        yield POLICY.at(policy.place, f"the policy {name} has no type")
    elif kind not in _WITHOUT_SETTINGS and not policy[kind].is_there:
        yield POLICY.at(policy["type"].place, f"the policy {name} is of type {kind}, and has no {kind}")
    for key, inner in policy.entries.items():
        if key not in (*_OF_ALL, kind):
            yield POLICY.at(inner.key_place, f"the policy {name} is of type {kind}: its {key} is not looked at")
    share = policy["probabilistic"]["sampling_percentage"].value
    if kind == "probabilistic" and isinstance(share, int | float) and not 0 < share <= 100:
        yield POLICY.at(policy["probabilistic"].place, f"the policy {name} keeps {share}%: more than 0, at most 100")
    for asked in ("min_value", "max_value"):
        if kind == "numeric_attribute" and not policy["numeric_attribute"][asked].is_there:
            yield POLICY.at(policy.place, f"the policy {name} has no {asked}: it would be 0")
