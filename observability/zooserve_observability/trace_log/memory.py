"""The last traces, in memory: found by trace id at once, the oldest dropped at a bound of bytes."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable

from zooserve_observability.spans import Span, below, read_spans
from zooserve_observability.trace_log.portions import Portion, portions_of, unpacked

__all__ = ["TraceLog"]

_TOLD_BYTES = 2 * 2**20
"""Of one trace, the newest first: a caller may put all of its requests under one trace id."""


class TraceLog:
    """Keeps portions of at most `max_bytes` together, and of `max_traces` traces.

    `also` is handed every portion that is taken: it must not take long.
    """

    def __init__(
        self,
        max_bytes: int,
        max_traces: int = 100_000,
        clock_ns: Callable[[], int] = time.time_ns,
        also: Callable[[Iterable[Portion]], None] = lambda portions: None,
    ) -> None:
        self._max_bytes = max_bytes
        self._max_traces = max_traces
        self._clock_ns = clock_ns
        self._also = also
        self._portions: deque[Portion] = deque()
        self._by_trace: dict[str, list[Portion]] = {}
        self._bytes = 0
        self._grown = asyncio.Event()

    def __len__(self) -> int:
        """How many traces it knows."""
        return len(self._by_trace)

    @property
    def size_bytes(self) -> int:
        """What the portions that it keeps have together."""
        return self._bytes

    def add(self, body: bytes) -> None:
        """Keep one export in JSON. Raises ValueError when it is none."""
        self.take(portions_of(read_spans(body), self._clock_ns()))

    def take(self, portions: Iterable[Portion]) -> None:
        """Keep what an export brought."""
        portions = list(portions)
        for portion in portions:
            self._portions.append(portion)
            self._bytes += len(portion.body)
            self._by_trace.setdefault(portion.trace_id, []).append(portion)
        while self._bytes > self._max_bytes or len(self._by_trace) > self._max_traces:
            self._drop_oldest()
        self._also(portions)
        self._grown.set()
        self._grown = asyncio.Event()

    def spans(self, trace_id: str, since_ns: int = 0) -> list[Span]:
        """What came of a trace since then, or the newest of a very large one."""
        return _read(self._portions_of(trace_id, since_ns))

    async def spans_below(
        self, trace_id: str, parent_id: str, name: str, within_s: float, since_ns: int = 0
    ) -> list[Span]:
        """The spans under `parent_id`, once one called `name` is among them, or what there is after `within_s`.

        Each portion is read once, however often others come meanwhile.
        """
        read: set[Portion] = set()
        spans: list[Span] = []
        found: list[Span] = []
        try:
            async with asyncio.timeout(within_s):
                while True:
                    grown = self._grown
                    fresh = [portion for portion in self._portions_of(trace_id, since_ns) if portion not in read]
                    if fresh:
                        read.update(fresh)
                        spans += _read(fresh)
                        found = below(spans, parent_id)
                        if any(span.name == name for span in found):
                            break
                    await grown.wait()
        except TimeoutError:
            pass
        return found

    def _portions_of(self, trace_id: str, since_ns: int) -> list[Portion]:
        found: list[Portion] = []
        size = 0
        for portion in reversed(self._by_trace.get(trace_id, ())):
            size += len(portion.body)
            if portion.received_ns < since_ns or (found and size > _TOLD_BYTES):
                break
            found.append(portion)
        return found[::-1]

    def _drop_oldest(self) -> None:
        portion = self._portions.popleft()
        self._bytes -= len(portion.body)
        kept = self._by_trace[portion.trace_id]
        kept.remove(portion)  # the first of them
        if not kept:
            del self._by_trace[portion.trace_id]


def _read(portions: Iterable[Portion]) -> list[Span]:
    return [span for portion in portions for span in unpacked(portion.trace_id, portion.body)]
