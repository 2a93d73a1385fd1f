"""Waiting, time limits and bounded concurrency over asyncio. `blocking.concurrency` has the same names over threads."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TypeVar
from weakref import WeakKeyDictionary

import httpx

from zooserve.sdk.budget import Budget

__all__ = ["Connections", "Lock", "Stream", "Work", "in_order", "limits_of", "sleep", "within"]

Item = TypeVar("Item")
Result = TypeVar("Result")
Stream = AsyncGenerator[Result, None]
Lock = asyncio.Lock
Work = Callable[[Item], Awaitable[Result]]

_END = object()
_CONNECT_S = 10.0
"""A host that takes no connection for so long is gone; the rest of the budget is for another try."""


@asynccontextmanager
async def within(budget: Budget) -> AsyncIterator[None]:
    """Raises DeadlineExceeded where the budget ends before the block does."""
    remaining_s = budget.remaining_s()
    try:
        async with asyncio.timeout(None if remaining_s == float("inf") else remaining_s) as limit:
            yield
    except TimeoutError as exc:
        if limit.expired():
            raise budget.exceeded() from exc
        raise


def limits_of(budget: Budget) -> httpx.Timeout:
    """httpx's limits for single operations: connecting alone, since `within` bounds the whole."""
    return httpx.Timeout(None, connect=min(_CONNECT_S, max(0.001, budget.remaining_s())))


class Connections:
    """A client whose connections are reused, by as many calls as run at once; one that was brought is never closed.

    Connections belong to the event loop that made them: after `asyncio.run` the next one begins with new ones.
    """

    def __init__(self, base_url: str, brought: httpx.AsyncClient | None) -> None:
        self._base_url = base_url
        self._brought = brought
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = WeakKeyDictionary()

    def client(self) -> httpx.AsyncClient:
        """For one request, in the running loop."""
        if self._brought is not None:
            return self._brought
        loop = asyncio.get_running_loop()
        if loop not in self._by_loop:
            self._by_loop[loop] = _new_client(self._base_url)
        return self._by_loop[loop]

    async def aclose(self) -> None:
        """Close the connections of the running loop; those of loops that have ended are gone."""
        client = self._by_loop.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()


def _new_client(base_url: str) -> httpx.AsyncClient:
    # Reading the certificates takes tens of milliseconds: only where there is something to verify.
    return httpx.AsyncClient(
        verify=base_url.startswith("https:"), limits=httpx.Limits(max_connections=None, max_keepalive_connections=32)
    )


async def sleep(seconds: float) -> None:
    """Let others run meanwhile."""
    await asyncio.sleep(seconds)


async def in_order(work: Work[Item, Result], items: Iterable[Item], limit: int) -> Stream[Result]:
    """The results of the work on each item, in the items' order, of which at most `limit` are taken and not given yet.

    The first error, and leaving the iterator, cancel the rest.
    """
    source = iter(items)
    window: deque[asyncio.Future[Result]] = deque()
    try:
        while True:
            while len(window) < limit and (item := next(source, _END)) is not _END:
                window.append(asyncio.ensure_future(work(item)))  # type: ignore[arg-type]
            if not window:
                return
            await _first_is_done(window)
            yield window.popleft().result()
    finally:
        for task in window:
            task.cancel()
        await asyncio.gather(*window, return_exceptions=True)


async def _first_is_done(window: "deque[asyncio.Future[Result]]") -> None:
    """Raises as soon as any of them fails."""
    while not window[0].done():
        pending = [task for task in window if not task.done()]
        done, _ = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
