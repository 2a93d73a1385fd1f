"""Waiting, time limits and bounded concurrency over threads. Written by hand; the other modules here are generated.

`aio.concurrency` has the same names over asyncio.
"""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

import httpx

from zooserve.sdk.budget import Budget

__all__ = ["Stream", "Work", "in_order", "limits_of", "new_client", "sleep", "within"]

Item = TypeVar("Item")
Result = TypeVar("Result")
Stream = Generator[Result, None, None]
Work = Callable[[Item], Result]

_END = object()
_CONNECT_S = 10.0


@contextmanager
def within(budget: Budget) -> Iterator[None]:
    """Raises DeadlineExceeded if the budget is over when the block begins; `limits_of` bounds what happens in it."""
    if budget.remaining_s() <= 0:
        raise budget.exceeded()
    yield


def limits_of(budget: Budget) -> httpx.Timeout:
    """httpx's limits for single operations."""
    remaining_s = max(0.001, budget.remaining_s())
    return httpx.Timeout(None if remaining_s == float("inf") else remaining_s, connect=min(_CONNECT_S, remaining_s))


def new_client(base_url: str) -> httpx.Client:
    """Connections that are reused, as many as calls run at once. Redirects are not followed."""
    # Reading the certificates takes tens of milliseconds: only where there is something to verify.
    return httpx.Client(
        verify=base_url.startswith("https:"), limits=httpx.Limits(max_connections=None, max_keepalive_connections=32)
    )


def sleep(seconds: float) -> None:
    """Block this thread."""
    time.sleep(seconds)


def in_order(work: Work[Item, Result], items: Iterable[Item], limit: int) -> Stream[Result]:
    """The results of the work on each item, in the items' order, of which at most `limit` are taken and not given yet.

    After the first error, and when the iterator is left, nothing more is begun. What runs then, at most `limit` items,
    ends by itself, within its budget, and nobody waits for it.
    """
    if limit == 1:
        yield from map(work, items)
        return
    source = iter(items)
    window: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(limit, thread_name_prefix="zooserve")
    try:
        while True:
            while len(window) < limit and (item := next(source, _END)) is not _END:
                window.append(pool.submit(work, item))  # type: ignore[arg-type]
            if not window:
                return
            _first_is_done(window)
            yield window.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _first_is_done(window: "deque[Future[Result]]") -> None:
    """Raises as soon as any of them fails."""
    while not window[0].done():
        done, _ = wait([future for future in window if not future.done()], return_when=FIRST_COMPLETED)
        for future in done:
            future.result()
