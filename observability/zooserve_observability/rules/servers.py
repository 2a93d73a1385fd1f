"""What everything else stands on: servers that stay up, stages that warm up, traces and scrapes that arrive, memory."""

from zooserve_observability import foreign, vocabulary
from zooserve_observability.rules.promql import TARGET, Value, among, selected, selector, series
from zooserve_observability.rules.recording import filled, increase, rate
from zooserve_observability.rules.rule import Alert, Condition, Recording
from zooserve_observability.scraping import JOBS, OBSERVERS

__all__ = ["ALERTS", "RECORDINGS", "answering"]

_NODE = ("instance",)
_restarts = increase("zooserve:server_restarts:increase30m", vocabulary.SERVER_RESTARTS, "30m", (*_NODE, "server"))
_reloads = increase(
    "zooserve:model_reloads:increase30m", vocabulary.MODEL_RELOADS, "30m", (*_NODE, "server", "triton_model")
)
_spans_dropped = rate("zooserve:spans_dropped:rate5m", vocabulary.SPANS_DROPPED, "5m", (*_NODE, "exporter", "reason"))
_DISK = (among("place", "disk"),)
_trace_log = filled(
    "zooserve:trace_log:ratio",
    selected(vocabulary.TRACE_LOG_BYTES, _DISK),
    selected(vocabulary.TRACE_LOG_MAX_BYTES, _DISK),
    _NODE,
)
_gpu_memory = filled(
    "zooserve:gpu_memory:ratio",
    selected(foreign.GPU_MEMORY_USED),
    selected(foreign.GPU_MEMORY_TOTAL),
    ("gpu_uuid",),
    ("requires", "gpu"),
)

_SERVING = (*JOBS, "qdrant", "vllm")


def up(*jobs: str) -> Value:
    """Prometheus' own: 1 where the last scrape succeeded. Of our jobs: others may be scraped beside them."""
    return Value(selector("up", (among("job", *jobs),), TARGET), frozenset(TARGET))


# A part that service discovery finds no more has no `up`; that it had one lately is remembered.
def answering(record: str, *jobs: str, tags: tuple[tuple[str, str], ...] = ()) -> Recording:
    """How many targets of each job answer; 0 for six hours after the last has gone."""
    text = up(*jobs).text
    expr = f"sum by (job) ({text})\nor\n0 * count by (job) (count_over_time({text}[6h]))"
    return Recording(record, expr, ("job",), tags)


_answering = answering("zooserve:job:up", *_SERVING)

RECORDINGS = (_restarts, _reloads, _spans_dropped, _trace_log, _gpu_memory, _answering)

ALERTS = (
    Alert(
        "ZooserveScrapeTargetDown",
        (Condition(up(*_SERVING, *OBSERVERS), "<", 1),),
        "5m",
        "ticket",
        "scrape",
        "overview",
        "{{ $labels.job }} at {{ $labels.instance }} cannot be scraped",
        "It is down or hangs, and every alert that looks at its series is blind.",
    ),
    Alert(
        "ZooserveJobGone",
        (Condition(_answering.where(), "<", 1),),
        "5m",
        "page",
        "scrape",
        "overview",
        "No {{ $labels.job }} can be scraped any more",
        "All of them are down, hang, or are found no more: whoever needs one fails, and alerts on it are blind.",
    ),
    Alert(
        "ZooserveServerRestartsOften",
        (Condition(_restarts.where(), ">", 2),),
        "0m",
        "ticket",
        "supervisor",
        "overview",
        '{{ $labels.server }} was started again {{ $value | printf "%.0f" }} times within 30 minutes, says '
        "{{ $labels.instance }}",
        "The supervisor keeps finding it dead or hung; requests fail meanwhile.",
    ),
    Alert(
        "ZooserveModelReloadsOften",
        (Condition(_reloads.where(), ">", 2),),
        "0m",
        "ticket",
        "supervisor",
        "zoo",
        '{{ $labels.triton_model }} was loaded again {{ $value | printf "%.0f" }} times within 30 minutes, says '
        "{{ $labels.instance }}",
        "Its stub keeps dying or failing the supervisor's probes.",
    ),
    Alert(
        "ZooserveWarmupFails",
        (Condition(series(vocabulary.WARMUP_FAILURES), ">", 0),),
        "1m",
        "ticket",
        "supervisor",
        "zoo",
        "{{ $labels.triton_model }} version {{ $labels.version }} could not run {{ $value }} of its warm-ups",
        "Requests of these lengths fail, or the first of them pays for what the warm-up should have paid.",
    ),
    Alert(
        "ZooserveSpansDropped",
        (Condition(_spans_dropped.where(), ">", 0.1),),
        "10m",
        "ticket",
        "traces",
        "overview",
        '{{ $value | printf "%.3g" }} spans a second are lost in {{ $labels.exporter }}: {{ $labels.reason }}, says '
        "{{ $labels.instance }}",
        "Traces are incomplete. Requests are not affected.",
    ),
    # A full log forgets the least worthy traces at about 90% of its file: beyond that it no longer makes room.
    Alert(
        "ZooserveTraceLogNearItsBound",
        (Condition(_trace_log.where(), ">", 0.97),),
        "15m",
        "ticket",
        "traces",
        "overview",
        "The trace log on {{ $labels.instance }} fills {{ $value | humanizePercentage }} of its room on the disk",
        "It forgets old traces slower than new ones come: what does not fit is dropped.",
    ),
    Alert(
        "ZooserveGpuMemoryNearFull",
        (Condition(_gpu_memory.where(), ">", 0.95),),
        "10m",
        "ticket",
        "gpu",
        "capacity",
        "{{ $value | humanizePercentage }} of the memory of GPU {{ $labels.gpu_uuid }} is used",
        "The next model that is loaded, or the next large batch, may fail for want of memory.",
        requires="gpu",
    ),
)
