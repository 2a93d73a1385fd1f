"""The last traces, in memory: exports kept as they came, found by trace id, the oldest dropped at a bound of bytes.

Parsed only when somebody asks: nearly all of them are dropped unread.
"""

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from zooserve_observability.spans import Span, below, read_spans

__all__ = ["TraceLog"]

_TRACE_ID = re.compile(rb'"traceId"\s*:\s*"([0-9a-fA-F]{32})"')


@dataclass(frozen=True, eq=False)
class _Export:
    body: bytes
    trace_ids: frozenset[str]
    received_ns: int


class TraceLog:
    """Keeps exports of at most `max_bytes` together, and of `max_traces` traces."""

    def __init__(self, max_bytes: int, max_traces: int = 100_000, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._max_bytes = max_bytes
        self._max_traces = max_traces
        self._clock_ns = clock_ns
        self._exports: deque[_Export] = deque()
        self._by_trace: dict[str, list[_Export]] = {}
        self._bytes = 0
        self._grown = asyncio.Event()

    def __len__(self) -> int:
        """How many traces it knows."""
        return len(self._by_trace)

    @property
    def size_bytes(self) -> int:
        """What the exports that it keeps have together."""
        return self._bytes

    def add(self, body: bytes) -> None:
        """Keep one export. Raises ValueError when there is no span in it."""
        export = _Export(body, frozenset(_trace_ids(body)), self._clock_ns())
        if not export.trace_ids:
            raise ValueError("no spans in OTLP's JSON form")
        self._exports.append(export)
        self._bytes += len(body)
        for trace_id in export.trace_ids:
            self._by_trace.setdefault(trace_id, []).append(export)
        while self._bytes > self._max_bytes or len(self._by_trace) > self._max_traces:
            self._drop_oldest()
        self._grown.set()
        self._grown = asyncio.Event()

    def spans(self, trace_id: str, since_ns: int = 0) -> list[Span]:
        """What came of a trace since then. Raises ValueError when an export of it cannot be read."""
        return _read(self._exports_of(trace_id, since_ns), trace_id)

    async def spans_below(
        self, trace_id: str, parent_id: str, name: str, within_s: float, since_ns: int = 0
    ) -> list[Span]:
        """The spans under `parent_id`, once one called `name` is among them, or what there is after `within_s`.

        Each export is read once, however often others come meanwhile.
        """
        read: set[_Export] = set()
        spans: list[Span] = []
        found: list[Span] = []
        try:
            async with asyncio.timeout(within_s):
                while True:
                    grown = self._grown
                    fresh = [export for export in self._exports_of(trace_id, since_ns) if export not in read]
                    read.update(fresh)
                    spans += _read(fresh, trace_id)
                    found = below(spans, parent_id)
                    if any(span.name == name for span in found):
                        break
                    await grown.wait()
        except TimeoutError:
            pass
        return found

    def _exports_of(self, trace_id: str, since_ns: int) -> list[_Export]:
        return [export for export in self._by_trace.get(trace_id, ()) if export.received_ns >= since_ns]

    def _drop_oldest(self) -> None:
        export = self._exports.popleft()
        self._bytes -= len(export.body)
        for trace_id in export.trace_ids:
            kept = self._by_trace[trace_id]
            kept.remove(export)
            if not kept:
                del self._by_trace[trace_id]


def _read(exports: Iterable[_Export], trace_id: str) -> list[Span]:
    return [span for export in exports for span in read_spans(export.body, trace_id)]


def _trace_ids(body: bytes) -> set[str]:
    """The traces that an export speaks of, found without parsing it: most exports are never looked at again."""
    return {found.decode().lower() for found in set(_TRACE_ID.findall(body))}
