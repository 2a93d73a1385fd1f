"""Traces that have not ended yet: each waits for its root, and then a while for what comes late."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from zooserve_observability.trace_log.portions import Portion

__all__ = ["Settling", "Waiting"]

_GRACE_S = 1.0
"""After the root: Triton exports every 0.1 s, a router every 0.2 s."""
_ROOTLESS_S = 30.0
"""Since the last span came, of a trace whose root does not: its router died, or never exports."""
_MAX_BYTES = 16 * 2**20
_MAX_TRACES = 20_000


@dataclass
class Waiting:
    """One trace that has not ended."""

    trace_id: str
    portions: list[Portion] = field(default_factory=list)
    grown_at: float = 0.0
    root_at: float | None = None
    """When its first root came. Traces of callers may have many, and may never end."""
    is_late: bool = False
    """Whether it has settled before."""

    def is_settled(self, now: float, grace_s: float, rootless_s: float) -> bool:
        """Whether nothing more is waited for."""
        if self.root_at is not None:
            return now >= self.root_at + grace_s
        return now >= self.grown_at + (grace_s if self.is_late else rootless_s)

    @property
    def size_bytes(self) -> int:
        """Of all its portions."""
        return sum(len(portion.body) for portion in self.portions)


class Settling:
    """The traces that wait. Over its bounds the oldest settle early; what then comes of them is late."""

    def __init__(
        self,
        grace_s: float = _GRACE_S,
        rootless_s: float = _ROOTLESS_S,
        max_bytes: int = _MAX_BYTES,
        max_traces: int = _MAX_TRACES,
    ) -> None:
        self._grace_s = grace_s
        self._rootless_s = rootless_s
        self._max_bytes = max_bytes
        self._max_traces = max_traces
        self._waiting: OrderedDict[str, Waiting] = OrderedDict()
        self._bytes = 0

    @property
    def size_bytes(self) -> int:
        """Of all portions that wait."""
        return self._bytes

    def put(self, portion: Portion, now: float, *, is_late: bool = False) -> None:
        """Add what came of a trace, which may have settled before."""
        trace = self._waiting.setdefault(portion.trace_id, Waiting(portion.trace_id, is_late=is_late))
        trace.portions.append(portion)
        trace.grown_at = now
        if portion.roots and trace.root_at is None:
            trace.root_at = now
        self._bytes += len(portion.body)

    def settled(self, now: float) -> Iterator[Waiting]:
        """Take out the traces that have ended, and the oldest of the others while there are too many."""
        for trace in list(self._waiting.values()):
            if trace.is_settled(now, self._grace_s, self._rootless_s):
                yield self._taken(trace.trace_id)
        while self._bytes > self._max_bytes or len(self._waiting) > self._max_traces:
            yield self._taken(next(iter(self._waiting)))

    def all(self) -> Iterator[Waiting]:
        """Take out every trace."""
        while self._waiting:
            yield self._taken(next(iter(self._waiting)))

    def _taken(self, trace_id: str) -> Waiting:
        trace = self._waiting.pop(trace_id)
        self._bytes -= trace.size_bytes
        return trace
