"""Waiting, time limits and bounded concurrency over threads. Written by hand, as `connections` is.

`aio.concurrency` has the same names over asyncio.
"""

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from typing import TypeVar

from zooserve.sdk.budget import Budget
from zooserve.sdk.working import Cancellation, pausing, working

__all__ = ["Lock", "Stream", "Work", "in_order", "sleep", "within"]

Item = TypeVar("Item")
Result = TypeVar("Result")
Stream = Generator[Result, None, None]
Lock = threading.Lock
Work = Callable[[Item], Result]

_END = object()


@contextmanager
def within(budget: Budget) -> Iterator[None]:
    """Raises DeadlineExceeded if the budget is over at the beginning; in the block sockets time out when it ends."""
    if budget.remaining_s() <= 0:
        raise budget.exceeded()
    with working(budget=budget):
        yield


def sleep(seconds: float) -> None:
    """Block this thread."""
    pausing(seconds)


def in_order(work: Work[Item, Result], items: Iterable[Item], limit: int) -> Stream[Result]:
    """The results of the work on each item, in the items' order, of which at most `limit` are taken and not given yet.

    After the first error, and when the iterator is left, nothing more is begun, and what waits at a socket is hung up.
    """
    if limit == 1:
        yield from map(work, items)
        return
    source = iter(items)
    window: deque[Future[Result]] = deque()
    cancellation = Cancellation()
    try:
        while True:
            while len(window) < limit and (item := next(source, _END)) is not _END:
                window.append(_begun(work, item, cancellation))  # type: ignore[arg-type]
            if not window:
                return
            _first_is_done(window)
            yield window.popleft().result()
    finally:
        cancellation.cancel()


def _begun(work: Work[Item, Result], item: Item, cancellation: Cancellation) -> "Future[Result]":
    """The work on one item, in a thread of its own, for which no program waits at its end.

    A pool's threads are waited for: a program that ended in the middle of a stream that one of its names still held,
    by Ctrl-C or an error, waited for answers that nobody wanted.
    """
    future: Future[Result] = Future()

    def run() -> None:
        try:
            with working(cancellation=cancellation):
                result = work(item)
        except BaseException as exc:
            future.set_exception(exc)
        else:
            future.set_result(result)

    threading.Thread(target=run, name="zooserve", daemon=True).start()
    return future


def _first_is_done(window: "deque[Future[Result]]") -> None:
    """Raises as soon as any of them fails."""
    while not window[0].done():
        done, _ = wait([future for future in window if not future.done()], return_when=FIRST_COMPLETED)
        for future in done:
            future.result()
