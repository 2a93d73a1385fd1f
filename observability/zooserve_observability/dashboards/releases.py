"""Releases: who gets how much of a model's requests, and whether a canary or a shadow is worse than what serves."""

from zooserve_observability import vocabulary
from zooserve_observability.dashboards.expressions import now, quantile, rate, share
from zooserve_observability.dashboards.panels import Dashboard, Panel, Query, Row
from zooserve_observability.rules.promql import among
from zooserve_observability.rules.slo import FAILURES

__all__ = ["DASHBOARD"]

_RELEASE = ("model", "release", "version", "role")
_NAMED = "{{role}}: {{release}} v{{version}} ({{model}})"
_RUN = 'outcome!="skipped"'
_BY_RELEASE = rate(vocabulary.RELEASE_REQUESTS, *_RELEASE, where=(_RUN,))
# What callers got wrong is no release's fault.
_WRONG = rate(
    vocabulary.RELEASE_REQUESTS, *_RELEASE, where=(among("outcome", *(failure.__name__ for failure in FAILURES)),)
)
_BY_ANSWERING = rate(vocabulary.RELEASE_REQUESTS, "model", where=('role!="shadow"', _RUN))
_OBSERVED = f"{_BY_RELEASE} / on (model) group_left () {_BY_ANSWERING}"
_CONFIGURED = now(vocabulary.RELEASE_SHARE, *_RELEASE, how="max")
_P95 = quantile(0.95, vocabulary.RELEASE_DURATION, *_RELEASE)
_P95_SERVING = quantile(0.95, vocabulary.RELEASE_DURATION, "model", where=('role="serving"',))

_SHARES = Row(
    "Who gets how much",
    (
        Panel(
            "Requests",
            "What each release ran, a shadow's copies too. A judgement needs some hundreds of them.",
            "reqps",
            (Query(_BY_RELEASE, _NAMED),),
        ),
        Panel(
            "Share, as observed",
            "What each release got, of what those that answer got together. Compare with the share that the catalogue "
            "says, beside.",
            "percentunit",
            (Query(_OBSERVED, _NAMED),),
        ),
        Panel(
            "Share, observed less configured",
            "0 is as the catalogue says. Far from it for long: few requests, or, where the split is by caller, a few "
            "busy callers.",
            "percentunit",
            (Query(f"{_OBSERVED} - {_CONFIGURED}", _NAMED),),
            least=None,
        ),
    ),
)

_COMPARED = Row(
    "Compared with what serves",
    (
        Panel(
            "Share of failures",
            "What ended in a 5xx, of what a release ran. A canary above what serves: take its share away.",
            "percentunit",
            (Query(share(_WRONG, _BY_RELEASE), _NAMED),),
            traces="failed",
        ),
        Panel(
            "Duration, p95",
            "Within this time 95 of 100 requests to a release were done.",
            "s",
            (Query(_P95, _NAMED),),
            traces="slow",
        ),
        Panel(
            "Duration, p95, beside what serves",
            "1 is as fast as what serves. A canary above 1.2 for ten minutes is slower.",
            "short",
            (Query(f"{_P95} / on (model) group_left () {_P95_SERVING}", _NAMED),),
            worry_at=1.2,
        ),
        Panel(
            "Outcomes",
            "How the requests to each release ended, by the error's name; skipped is what a shadow was not given, "
            "being busy or not ready.",
            "reqps",
            (
                Query(
                    rate(vocabulary.RELEASE_REQUESTS, "release", "role", "outcome"),
                    "{{role}}: {{release}}: {{outcome}}",
                ),
            ),
            width=24,
        ),
    ),
)

DASHBOARD = Dashboard(
    "releases",
    "zooserve: releases",
    "Serving, canary and shadow of each model with several releases: shares, errors, and time.",
    (_SHARES, _COMPARED),
)
