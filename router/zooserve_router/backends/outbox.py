"""Spans on their way to the trace log: taken at once, told in the background, dropped when too many wait."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import islice

from zooserve_observability.spans import Span
from zooserve_router.backends.traces import TraceSource

__all__ = ["Outbox"]

_MOST = 4096
"""Spans that wait: some 2.5 MB, and the chats of a few seconds."""
_AT_ONCE = 512
"""Spans of one export, some 300 kB; the log takes 4 MiB."""


class Outbox:
    """Tells one trace log. No answer ever waits for it or fails by it."""

    def __init__(self, traces: TraceSource, dropped: Callable[[int], None], most: int = _MOST) -> None:
        self._traces = traces
        self._dropped = dropped
        self._most = most
        self._waiting: deque[Span] = deque()
        self._filled = asyncio.Event()

    def put(self, spans: Sequence[Span]) -> None:
        """Take these, or as many as there is room for; the first ones say most."""
        taken = spans[: self._most - len(self._waiting)]
        self._waiting.extend(taken)
        if len(taken) < len(spans):
            self._dropped(len(spans) - len(taken))
        self._filled.set()

    @asynccontextmanager
    async def telling(self) -> AsyncIterator[None]:
        """Tell for the block what is put, and at its end once more what is left."""
        teller = asyncio.create_task(self._tell_for_ever())
        try:
            yield
        finally:
            teller.cancel()
            await asyncio.gather(teller, return_exceptions=True)
            await self._tell_some()

    async def _tell_for_ever(self) -> None:
        while True:
            await self._filled.wait()
            await self._tell_some()

    async def _tell_some(self) -> None:
        some = list(islice(self._waiting, _AT_ONCE))
        for _ in some:
            self._waiting.popleft()
        if not self._waiting:
            self._filled.clear()
        if some:
            await self._traces.tell(*some)
