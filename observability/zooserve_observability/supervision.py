"""What the supervisor counts: what its looks at its servers found, remedies it had to apply, and traces it keeps."""

from prometheus_client import CollectorRegistry

from zooserve_observability import vocabulary
from zooserve_observability.trace_metrics import TraceMetrics

__all__ = ["SupervisorMetrics"]


class SupervisorMetrics:
    """The supervisor's series, in the registry that is handed in.

    With PROMETHEUS_MULTIPROC_DIR set before prometheus_client is imported, the router's /metrics shows them.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.restarts = vocabulary.SERVER_RESTARTS.counter(registry)
        self.reloads = vocabulary.MODEL_RELOADS.counter(registry)
        self.probe_failures = vocabulary.PROBE_FAILURES.counter(registry)
        self.warmup_failures = vocabulary.WARMUP_FAILURES.counter(registry)
        self.traces = TraceMetrics(registry)
