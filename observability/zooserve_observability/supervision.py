"""What the supervisor counts: what its looks at its servers found, remedies it had to apply, and traces it keeps."""

import os
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry

from zooserve_observability import vocabulary
from zooserve_observability.replica_files import make_room
from zooserve_observability.trace_metrics import TraceMetrics

__all__ = ["SupervisorMetrics"]


class SupervisorMetrics:
    """The supervisor's series, in the registry that is handed in.

    With PROMETHEUS_MULTIPROC_DIR set before prometheus_client is imported, the router's /metrics shows them.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        if folder := os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
            make_room(Path(folder), "counter", "gauge_mostrecent")
        self.restarts = vocabulary.SERVER_RESTARTS.counter(registry)
        self.reloads = vocabulary.MODEL_RELOADS.counter(registry)
        self.probe_failures = vocabulary.PROBE_FAILURES.counter(registry)
        self.warmup_failures = vocabulary.WARMUP_FAILURES.counter(registry)
        self.traces = TraceMetrics(registry)

    def looks_after(self, server: str, models: Iterable[str] = ()) -> None:
        """Have the counts of a server, and of its models that are probed, begin at 0."""
        self.restarts.labels(server)
        for model in models:
            self.probe_failures.labels(server, model)

    def loads(self, server: str, versions: Iterable[tuple[str, str]]) -> None:
        """Have the counts of what a Triton loads begin at 0; its stages are never probed by themselves."""
        for model, version in versions:
            self.reloads.labels(server, model)
            self.warmup_failures.labels(model, version)
