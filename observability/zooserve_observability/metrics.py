"""What the router records, made from the `vocabulary`; chat's, the leaves' and other parts have recorders of their own.

prometheus_client runs in multiprocess mode where PROMETHEUS_MULTIPROC_DIR was set before it was imported: each
replica writes its own files there and any replica's /metrics answers for all of them.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from prometheus_client import CollectorRegistry, generate_latest

from zooserve.errors import FailedStage, Overloaded
from zooserve_observability import vocabulary
from zooserve_observability.chat_metrics import ChatMetrics
from zooserve_observability.endpoint_metrics import EndpointMetrics
from zooserve_observability.leaf_metrics import LeafMetrics
from zooserve_observability.log_metrics import LogMetrics
from zooserve_observability.release_metrics import FAILURES, ReleaseMetrics
from zooserve_observability.replica_files import make_room, page
from zooserve_observability.trace_metrics import TraceMetrics

__all__ = ["CONTENT_TYPE", "UNKNOWN_MODEL", "AdmissionReason", "RouterMetrics"]

AdmissionReason = Literal["tokens", "requests", "queue", "deadline", "breaker", "not_ready"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
UNKNOWN_MODEL = "unknown"


class RouterMetrics:
    """The router's series, in the registry that is handed in."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        if (folder := _shared_folder()) is not None:
            make_room(folder, "counter", "histogram", "gauge_livesum", "gauge_livemax", "gauge_livemin")
        self._requests = vocabulary.REQUESTS.counter(registry)
        self._duration_s = vocabulary.REQUEST_DURATION.histogram(registry)
        self._in_flight = vocabulary.IN_FLIGHT.gauge(registry)
        self._refused = vocabulary.REFUSED.counter(registry)
        self._admission_refused = vocabulary.ADMISSION_REFUSED.counter(registry)
        self._tokens = vocabulary.TOKENS.counter(registry)
        self._stage_failures = vocabulary.STAGE_FAILURES.counter(registry)
        self._space_mismatches = vocabulary.SPACE_MISMATCHES.counter(registry)
        self._info = vocabulary.MODEL_INFO.gauge(registry)
        self._ready = vocabulary.MODEL_READY.gauge(registry)
        self.chat = ChatMetrics(registry)
        self.leaves = LeafMetrics(registry)
        self.endpoints = EndpointMetrics(registry)
        self.releases = ReleaseMetrics(registry)
        self.traces = TraceMetrics(registry)
        self.logs = LogMetrics(registry)

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

    def may_be_asked(self, model: str, version: str, slo_classes: Iterable[str], directions: Iterable[str]) -> None:
        """Put the series of a model's requests and tokens there at 0: a rate sees the first of each."""
        for slo_class in slo_classes:
            for outcome in ("ok", Overloaded.__name__, *FAILURES):
                self._requests.labels(model, version, slo_class, outcome)
            for direction in directions:
                self._tokens.labels(model, version, slo_class, direction)

    def read_and_wrote(self, model: str, version: str, slo_class: str, input_tokens: int, output_tokens: int) -> None:
        """Count the tokens of one request."""
        if input_tokens:
            self._tokens.labels(model, version, slo_class, "input").inc(input_tokens)
        if output_tokens:
            self._tokens.labels(model, version, slo_class, "output").inc(output_tokens)

    def refusal(self, reason: str) -> None:
        """Count one request refused before any work was done."""
        self._refused.labels(reason).inc()

    def stage_failed(self, model: str, failed: FailedStage) -> None:
        """Count one request to the zoo that failed in this stage of a model."""
        self._stage_failures.labels(model, failed.name or "unknown", failed.version, failed.reason).inc()

    def admission_refused(self, model: str, slo_class: str, reason: AdmissionReason) -> None:
        """Count one request that a model had no room for."""
        self._admission_refused.labels(model, slo_class, reason).inc()

    def may_refuse(self, model: str, slo_class: str, reasons: Iterable[AdmissionReason]) -> None:
        """Put the series of what a model may refuse there at 0: a rate sees the first time."""
        for reason in reasons:
            self._admission_refused.labels(model, slo_class, reason)

    def space_mismatched(self, model: str, version: str) -> None:
        """Count one request that named another embedding space than the model's."""
        self._space_mismatches.labels(model, version).inc()

    def spans_space(self, model: str, version: str) -> None:
        """Have the count of mismatches begin at 0 for a model that makes vectors."""
        self._space_mismatches.labels(model, version)

    def serves(self, model: str, version: str, task: str, runs_on: str, weights: str) -> None:
        """Say that this model is served, with these weights."""
        self._info.labels(model, version, task, runs_on, weights).set(1)

    def found_ready(self, model: str, version: str, ready: bool) -> None:
        """Say whether a model is ready."""
        self._ready.labels(model, version).set(ready)

    def exposition(self) -> bytes:
        """Everything in Prometheus' text format, over all processes that share the multiprocess folder."""
        folder = _shared_folder()
        return generate_latest(self._registry) if folder is None else page(folder)


def _shared_folder() -> Path | None:
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    return None if folder is None else Path(folder)
