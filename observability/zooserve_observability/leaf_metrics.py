"""The part of the vocabulary that tells several leaves of one model apart. Addresses are the catalogue's."""

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge

__all__ = ["LeafMetrics"]

_LABELS = ("model", "leaf")


class LeafMetrics:
    """The leaves' series, in the registry that is handed in."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._in_flight = Gauge(
            "zooserve_leaf_requests_in_flight",
            "Generations in flight on each of a model's leaves, where it has several.",
            _LABELS,
            multiprocess_mode="livesum",
            registry=registry,
        )
        self._left_out = Counter(
            "zooserve_leaf_left_out",
            "Times that a leaf was found down, and left out for a while.",
            _LABELS,
            registry=registry,
        )

    @contextmanager
    def flying(self, model: str, leaf: str) -> Iterator[None]:
        """Count one generation on a leaf for the block."""
        in_flight = self._in_flight.labels(model, leaf)
        in_flight.inc()
        try:
            yield
        finally:
            in_flight.dec()

    def left_out(self, model: str, leaf: str) -> None:
        """Count that a leaf was found down."""
        self._left_out.labels(model, leaf).inc()
