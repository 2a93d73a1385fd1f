"""What is recorded of several leaves of one model. Addresses are the catalogue's."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry

from zooserve_observability import vocabulary

__all__ = ["LeafMetrics"]


class LeafMetrics:
    """The leaves' series, in the registry that is handed in."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._in_flight = vocabulary.LEAF_IN_FLIGHT.gauge(registry)
        self._left_out = vocabulary.LEAF_LEFT_OUT.counter(registry)

    def expects(self, model: str, leaves: Iterable[str]) -> None:
        """Show these leaves at 0: one that never gets anything would not be seen beside the others."""
        for leaf in leaves:
            self._in_flight.labels(model, leaf)
            self._left_out.labels(model, leaf)

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
