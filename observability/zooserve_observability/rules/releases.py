"""Releases beside each other: a canary against what serves, once it has had enough requests to tell."""

from zooserve_observability import vocabulary
from zooserve_observability.rules.promql import among, summed
from zooserve_observability.rules.rule import Alert, Condition, Recording
from zooserve_observability.rules.slo import FAILURES

__all__ = ["ALERTS", "RECORDINGS"]

_WINDOW = "10m"
_CANARY = among("role", "canary")
_SERVING = among("role", "serving")
_RELEASE = ("model", "release", "version")
_FAILED = among("outcome", *(failure.__name__ for failure in FAILURES))
_ENDED = among("outcome", "ok", *(failure.__name__ for failure in FAILURES))


def _error_ratio(role: str, by: tuple[str, ...]) -> str:
    ended = summed(vocabulary.RELEASE_REQUESTS, _WINDOW, by, (role, _ENDED))
    failed = summed(vocabulary.RELEASE_REQUESTS, _WINDOW, by, (role, _FAILED))
    return f"({failed}\nor\n{ended} * 0)\n/\n({ended} > 0)"


def _p95(role: str, by: tuple[str, ...]) -> str:
    buckets = summed(vocabulary.RELEASE_DURATION, _WINDOW, (*by, "le"), (role,), suffix="_bucket")
    # Of no requests there is no p95 (NaN), which is not above 0.
    return f"(histogram_quantile(0.95, {buckets}) > 0)"


# While a promotion goes on two releases may have served within the window: they are taken together.
_errors_excess = Recording(
    f"zooserve:canary_errors:excess{_WINDOW}",
    f"({_error_ratio(_CANARY, _RELEASE)})\n- on (model) group_left ()\n({_error_ratio(_SERVING, ('model',))})",
    _RELEASE,
)
_p95_ratio = Recording(
    f"zooserve:canary_p95:ratio{_WINDOW}",
    f"{_p95(_CANARY, _RELEASE)}\n/ on (model) group_left ()\n{_p95(_SERVING, ('model',))}",
    _RELEASE,
)
_canary_requests = Recording(
    f"zooserve:canary_requests:increase{_WINDOW}",
    summed(vocabulary.RELEASE_REQUESTS, _WINDOW, _RELEASE, (_CANARY,), over="increase"),
    _RELEASE,
)

RECORDINGS = (_errors_excess, _p95_ratio, _canary_requests)

_ENOUGH = Condition(_canary_requests.where(), ">", 50)

ALERTS = (
    Alert(
        "ZooserveCanaryFails",
        (Condition(_errors_excess.where(), ">", 0.02), _ENOUGH),
        "2m",
        "page",
        "releases",
        "releases",
        "{{ $labels.release }} fails {{ $value | humanizePercentage }} more of its requests than what serves",
        "The canary of {{ $labels.model }} fails where the serving release does not.",
    ),
    Alert(
        "ZooserveCanarySlow",
        (Condition(_p95_ratio.where(), ">", 1.5), _ENOUGH),
        "5m",
        "ticket",
        "releases",
        "releases",
        '{{ $labels.release }} takes {{ $value | printf "%.3g" }} times as long as what serves, at p95',
        "The canary of {{ $labels.model }} is slower than the serving release on the same traffic.",
    ),
)
