"""Whom a thread works for: the budget that bounds what it waits for, and the cancellation that ends it."""

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Protocol

from zooserve.sdk.budget import Budget

__all__ = ["Cancellation", "pausing", "work", "working"]


class _HangsUp(Protocol):
    def hang_up(self) -> None: ...


class Cancellation:
    """Ends what several threads wait for at sockets. Once for all of a call."""

    def __init__(self) -> None:
        self.happened = threading.Event()
        self._lock = threading.Lock()
        self._waiting: set[_HangsUp] = set()

    def cancel(self) -> None:
        """Whoever waits wakes up with an error; whoever is about to gets CancelledError."""
        with self._lock:
            self.happened.set()
            for stream in self._waiting:
                stream.hang_up()

    def refuse(self) -> None:
        """Raises CancelledError if it has happened."""
        if self.happened.is_set():
            raise CancelledError

    @contextmanager
    def ending(self, stream: _HangsUp) -> Iterator[None]:
        """In the block the stream is one to hang up."""
        with self._lock:
            self.refuse()
            self._waiting.add(stream)
        try:
            yield
        finally:
            with self._lock:
                self._waiting.discard(stream)


class _Work(threading.local):
    budget: Budget | None = None
    cancellation: Cancellation | None = None


work = _Work()
"""Whom this thread works for."""


@contextmanager
def working(*, budget: Budget | None = None, cancellation: Cancellation | None = None) -> Iterator[None]:
    """In the block this thread's sockets heed these, or, what is left out, those of the block around it."""
    outer = work.budget, work.cancellation
    work.budget, work.cancellation = budget or outer[0], cancellation or outer[1]
    try:
        if work.cancellation is not None:
            work.cancellation.refuse()
        yield
    finally:
        work.budget, work.cancellation = outer


def pausing(seconds: float) -> None:
    """Sleep. Raises CancelledError as soon as the call is cancelled."""
    cancellation = work.cancellation
    (threading.Event() if cancellation is None else cancellation.happened).wait(seconds)
    if cancellation is not None:
        cancellation.refuse()
