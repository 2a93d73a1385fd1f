"""The metric vocabulary: every series that the router exports, named and explained once; chat's are `chat_metrics`
and `leaf_metrics`.

prometheus_client runs in multiprocess mode where PROMETHEUS_MULTIPROC_DIR was set before it was imported: each
replica writes its own files there and any replica's /metrics answers for all of them. Labels are bounded by the
catalogue: a name that a client made up is counted under `unknown`.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from zooserve.errors import FailedStage
from zooserve_observability.chat_metrics import ChatMetrics
from zooserve_observability.leaf_metrics import LeafMetrics

__all__ = ["CONTENT_TYPE", "UNKNOWN_MODEL", "RouterMetrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
UNKNOWN_MODEL = "unknown"

_DURATION_BUCKETS_S = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_MODEL_LABELS = ("model", "version", "class")


class RouterMetrics:
    """The router's series, in the registry that is handed in."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._requests = Counter(
            "zooserve_requests",
            "Requests that ended; outcome is ok, cancelled, or the error's name.",
            (*_MODEL_LABELS, "outcome"),
            registry=registry,
        )
        self._duration_s = Histogram(
            "zooserve_request_duration_seconds",
            "From the request's first byte to the answer's last, by model and class.",
            _MODEL_LABELS,
            buckets=_DURATION_BUCKETS_S,
            registry=registry,
        )
        self._in_flight = Gauge(
            "zooserve_requests_in_flight",
            "Requests being worked on.",
            multiprocess_mode="livesum",
            registry=registry,
        )
        self._refused = Counter(
            "zooserve_refused",
            "Requests refused before any work was done, by the error's code.",
            ("reason",),
            registry=registry,
        )
        self._tokens = Counter(
            "zooserve_tokens",
            "Tokens read (direction input) and written (direction output).",
            (*_MODEL_LABELS, "direction"),
            registry=registry,
        )

        self._stage_failures = Counter(
            "zooserve_stage_failures",
            "Requests to the zoo that a stage failed or refused; stage is `unknown` where nothing told which.",
            ("model", "stage", "version", "reason"),
            registry=registry,
        )
        self._spans_dropped = Counter(
            "zooserve_spans_dropped",
            "Spans that the trace log did not get because too many waited for it.",
            registry=registry,
        )
        self.chat = ChatMetrics(registry)
        self.leaves = LeafMetrics(registry)

    @contextmanager
    def flying(self) -> Iterator[None]:
        """Count one request as in flight for the block."""
        self._in_flight.inc()
        try:
            yield
        finally:
            self._in_flight.dec()

    def ended(self, model: str, version: str, slo_class: str, outcome: str, duration_s: float) -> None:
        """Count one finished request."""
        self._requests.labels(model, version, slo_class, outcome).inc()
        self._duration_s.labels(model, version, slo_class).observe(duration_s)

    def read_and_wrote(self, model: str, version: str, slo_class: str, input_tokens: int, output_tokens: int) -> None:
        """Count the tokens of one request."""
        if input_tokens:
            self._tokens.labels(model, version, slo_class, "input").inc(input_tokens)
        if output_tokens:
            self._tokens.labels(model, version, slo_class, "output").inc(output_tokens)

    def spans_dropped(self, spans: int) -> None:
        """Count spans that were not told."""
        self._spans_dropped.inc(spans)

    def refusal(self, reason: str) -> None:
        """Count one request refused before any work was done."""
        self._refused.labels(reason).inc()

    def stage_failed(self, model: str, failed: FailedStage) -> None:
        """Count one request to the zoo that failed in this stage of a model."""
        self._stage_failures.labels(model, failed.name or "unknown", failed.version, failed.reason).inc()

    def exposition(self) -> bytes:
        """Everything in Prometheus' text format, over all processes that share the multiprocess folder."""
        folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        if folder is None:
            return generate_latest(self._registry)
        _forget_the_dead(Path(folder))
        whole = CollectorRegistry()
        MultiProcessCollector(whole, path=folder)  # type: ignore[no-untyped-call]
        return generate_latest(whole)


def _forget_the_dead(folder: Path) -> None:
    """Drop the gauges of replicas that are gone: what a killed one had in flight would count for ever."""
    for file in folder.glob("gauge_live*_*.db"):
        pid = file.stem.rpartition("_")[2]
        if not Path("/proc", pid).exists():
            mark_process_dead(int(pid), str(folder))  # type: ignore[no-untyped-call]
