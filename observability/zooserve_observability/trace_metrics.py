"""What is recorded of traces on their way: spans taken, spans lost, and what the trace log decided."""

from typing import Literal, get_args

from prometheus_client import CollectorRegistry

from zooserve_observability import vocabulary
from zooserve_observability.trace_log.decision import Decision

__all__ = ["DropReason", "Exporter", "TraceMetrics"]

Exporter = Literal["router", "log", "forward"]
DropReason = Literal["queue_full", "failed", "disk"]


class TraceMetrics:
    """The traces' series, in the registry that is handed in."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._exported = vocabulary.SPANS_EXPORTED.counter(registry)
        self._dropped = vocabulary.SPANS_DROPPED.counter(registry)
        self._decided = vocabulary.TRACES_DECIDED.counter(registry)
        self._log_bytes = vocabulary.TRACE_LOG_BYTES.gauge(registry)
        self._log_max_bytes = vocabulary.TRACE_LOG_MAX_BYTES.gauge(registry)

    def expects(self, exporter: Exporter) -> None:
        """Show this exporter's series at 0, so that its first loss is a rise."""
        self._exported.labels(exporter)
        for reason in get_args(DropReason):
            self._dropped.labels(exporter, reason)

    def expects_decisions(self) -> None:
        """Show every decision at 0."""
        for decision in get_args(Decision):
            self._decided.labels(decision)

    def exported(self, exporter: Exporter, spans: int) -> None:
        """Count spans that were taken."""
        self._exported.labels(exporter).inc(spans)

    def dropped(self, exporter: Exporter, reason: DropReason, spans: int) -> None:
        """Count spans that were lost."""
        self._dropped.labels(exporter, reason).inc(spans)

    def decided(self, decision: Decision) -> None:
        """Count one whole trace."""
        self._decided.labels(decision).inc()

    def log_takes(self, memory_bytes: int, disk_bytes: int) -> None:
        """Say how large the trace log is."""
        self._log_bytes.labels("memory").set(memory_bytes)
        self._log_bytes.labels("disk").set(disk_bytes)

    def log_may_take(self, memory_bytes: int, disk_bytes: int) -> None:
        """Say how large the trace log may become."""
        self._log_max_bytes.labels("memory").set(memory_bytes)
        self._log_max_bytes.labels("disk").set(disk_bytes)
