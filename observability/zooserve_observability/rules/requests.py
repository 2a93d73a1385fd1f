"""Requests at the router: how many, how many had no room, and whether there is a way to what they ask for."""

from zooserve_observability import vocabulary
from zooserve_observability.rules.promql import among, series, summed
from zooserve_observability.rules.recording import increase, rate
from zooserve_observability.rules.rule import Alert, Condition, Recording

__all__ = ["ALERTS", "RECORDINGS"]

_BY = ("model", "class")

_requests = rate("zooserve:requests:rate5m", vocabulary.REQUESTS, "5m", _BY)
_refused_by_reason = rate("zooserve:admission_refused:rate5m", vocabulary.ADMISSION_REFUSED, "5m", (*_BY, "reason"))
_whole = summed(vocabulary.REQUESTS, "5m", _BY)
# A broken backend is no lack of room. Who never was refused anything has no series of refusals: that is a share of 0.
_no_room = summed(vocabulary.ADMISSION_REFUSED, "5m", _BY, ('reason!~"breaker|not_ready"',))
_refused_ratio = Recording(
    "zooserve:admission_refused:ratio_rate5m",
    f"({_no_room}\nor\n{_whole} * 0)\n/\n({_whole} > 0)",
    _BY,
)
_retries_denied = rate(
    "zooserve:retries_denied:rate5m", vocabulary.RETRIES, "5m", ("instance", "endpoint"), (among("outcome", "denied"),)
)
_mismatches = increase(
    "zooserve:space_mismatches:increase15m", vocabulary.SPACE_MISMATCHES, "15m", ("model", "version")
)

RECORDINGS = (_requests, _refused_by_reason, _refused_ratio, _retries_denied, _mismatches)

ALERTS = (
    Alert(
        "ZooserveRequestsRefused",
        (Condition(_refused_ratio.where(), ">", 0.05), Condition(_requests.where(), ">", 0.2)),
        "10m",
        "ticket",
        "router",
        "overview",
        "{{ $value | humanizePercentage }} of the {{ $labels.class }} requests to {{ $labels.model }} find no room",
        "The router's admission turns callers away: the load is beyond the budget, or the work takes longer.",
    ),
    Alert(
        "ZooserveModelNotReady",
        (Condition(series(vocabulary.MODEL_READY), "<", 1),),
        "5m",
        "page",
        "router",
        "overview",
        "{{ $labels.model }} version {{ $labels.version }} is not ready on {{ $labels.instance }}",
        "The router's own inferences fail: every request to this model gets a 503.",
    ),
    Alert(
        "ZooserveBreakerOpen",
        (Condition(series(vocabulary.BREAKER_STATE), ">", 0),),
        "2m",
        "ticket",
        "router",
        "overview",
        "The circuit breaker of {{ $labels.endpoint }} has not been closed for two minutes",
        "Calls to this endpoint failed in a row, so requests are kept away from it and refused or sent elsewhere.",
    ),
    Alert(
        "ZooserveRetriesDenied",
        (Condition(_retries_denied.where(), ">", 0.02),),
        "5m",
        "ticket",
        "router",
        "overview",
        '{{ $value | printf "%.3g" }} retries a second to {{ $labels.endpoint }} are denied on {{ $labels.instance }}',
        "So much fails that the retry budget is used up: more tries would only add load.",
    ),
    Alert(
        "ZooserveEmbeddingSpaceMismatches",
        (Condition(_mismatches.where(), ">", 2),),
        "0m",
        "ticket",
        "router",
        "overview",
        '{{ $value | printf "%.0f" }} requests to {{ $labels.model }}@{{ $labels.version }} named another space',
        "A caller's collection was made by another embedding version: it was refused, or its hits would be noise.",
    ),
)
