"""Waiting, time limits and bounded concurrency over asyncio. `blocking.concurrency` has the same names over threads."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TypeVar

from zooserve.sdk.budget import Budget

__all__ = ["Lock", "Stream", "Work", "in_order", "sleep", "within"]

Item = TypeVar("Item")
Result = TypeVar("Result")
Stream = AsyncGenerator[Result, None]
Lock = asyncio.Lock
Work = Callable[[Item], Awaitable[Result]]

_END = object()


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
