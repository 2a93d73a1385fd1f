"""Who watches: what the Collector loses on the way to Tempo, and watchers that are there no more."""

from zooserve_observability import foreign
from zooserve_observability.rules.promql import summed
from zooserve_observability.rules.rule import Alert, Condition, Recording
from zooserve_observability.rules.servers import answering
from zooserve_observability.scraping import OBSERVERS

__all__ = ["ALERTS", "RECORDINGS"]

_REQUIRED = (("requires", "collector"),)
_LOSSES = {
    "refused": foreign.COLLECTOR_REFUSED,
    "not_sent": foreign.COLLECTOR_NOT_SENT,
    "queue_full": foreign.COLLECTOR_NOT_QUEUED,
    "undecided": foreign.COLLECTOR_UNDECIDED,
}


def _as_reason(reason: str, family: foreign.ForeignMetric) -> str:
    return f'label_replace({summed(family, "5m", ("instance",))}, "reason", "{reason}", "", "")'


_lost = Recording(
    "zooserve:collector_lost:rate5m",
    "\nor\n".join(_as_reason(reason, family) for reason, family in _LOSSES.items()),
    ("instance", "reason"),
    _REQUIRED,
)
_watching = answering("zooserve:observer:up", *OBSERVERS, tags=_REQUIRED)

RECORDINGS = (_lost, _watching)

ALERTS = (
    Alert(
        "ZooserveCollectorLosesSpans",
        (Condition(_lost.where(), ">", 0.1),),
        "10m",
        "ticket",
        "traces",
        "overview",
        '{{ $value | printf "%.3g" }} a second do not get through the Collector at {{ $labels.instance }}: '
        "{{ $labels.reason }}",
        "Traces in Tempo are incomplete, or missing. Requests are not affected, and span metrics count on.",
        requires="collector",
    ),
    Alert(
        "ZooserveObserverGone",
        (Condition(_watching.where(), "<", 1),),
        "10m",
        "ticket",
        "scrape",
        "overview",
        "No {{ $labels.job }} can be scraped any more",
        "Requests go on. What it collects or shows is missing until it is back.",
        requires="collector",
    ),
)
