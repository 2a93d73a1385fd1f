"""What is recorded of logs: lines that were lost."""

from typing import Literal

from prometheus_client import CollectorRegistry

from zooserve_observability import vocabulary

__all__ = ["LogMetrics", "LogName"]

LogName = Literal["access"]


class LogMetrics:
    """The logs' series, in the registry that is handed in."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._dropped = vocabulary.LOG_LINES_DROPPED.counter(registry)
        self._dropped.labels("access")  # at 0, so that a rate sees the first loss

    def dropped(self, log: LogName, lines: int) -> None:
        """Count lines that were lost."""
        self._dropped.labels(log).inc(lines)
