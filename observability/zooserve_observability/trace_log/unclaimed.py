"""Traces that settled before their root came, and that nobody was told of: kept a while for the case that it comes."""

from collections import OrderedDict
from collections.abc import Iterable

from zooserve_observability.trace_log.portions import Portion

__all__ = ["Unclaimed"]

_MAX_BYTES = 4 * 2**20
"""Of what a request exports before it waits for long: some 5,000 chats."""


class Unclaimed:
    """Portions by trace; the oldest traces are forgotten at a bound of bytes."""

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._portions: OrderedDict[str, tuple[Portion, ...]] = OrderedDict()
        self._bytes = 0

    @property
    def size_bytes(self) -> int:
        """Of all of them."""
        return self._bytes

    def keep(self, trace_id: str, portions: Iterable[Portion]) -> None:
        """Keep these beside what is kept of the trace."""
        self._portions[trace_id] = (*self.taken(trace_id), *portions)
        self._bytes += _size(self._portions[trace_id])
        while self._bytes > self._max_bytes:
            self.taken(next(iter(self._portions)))

    def taken(self, trace_id: str) -> tuple[Portion, ...]:
        """What is kept of a trace, which is kept no more."""
        portions = self._portions.pop(trace_id, ())
        self._bytes -= _size(portions)
        return portions


def _size(portions: Iterable[Portion]) -> int:
    return sum(len(portion.body) for portion in portions)
