"""Waiting, time limits and bounded concurrency over asyncio. `blocking.concurrency` has the same names over threads."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TypeVar

import httpx

from zooserve.sdk.budget import Budget

__all__ = ["Stream", "Work", "in_order", "limits_of", "new_client", "sleep", "within"]

Item = TypeVar("Item")
Result = TypeVar("Result")
Stream = AsyncGenerator[Result, None]
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


def new_client(base_url: str) -> httpx.AsyncClient:
    """Connections that are reused, as many as calls run at once. Redirects are not followed."""
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
