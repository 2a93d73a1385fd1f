"""Ctrl-C and SIGTERM end a job in order, once: what is under way is taken down, and a second one changes nothing.

A library may put its own handler in the place of ours, or one in C that writes a dump of the process: so while one
starts, a thread of ours takes the signals. The kernel gives a signal to any thread that has it not blocked, so threads
of libraries are to be started with it blocked.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = [
    "Left",
    "Told",
    "end_in_order",
    "signals_kept_from_threads",
    "signals_taken_aside",
    "tell_thread",
    "told_by_a_thread",
]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_MESSAGE = signal.SIGURG
"""From the thread that takes the others to the main one. Nobody else sends it, and ignoring it is the default."""
_LOOK_S = 0.1
_PATIENCE_S = 10.0
"""For a library in C to come back to Python."""


class Left(KeyboardInterrupt):
    """The job was asked to end, by the signal of this number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def exit_code(self) -> int:
        """As a shell gives it: 130 of Ctrl-C, 143 of SIGTERM."""
        return 128 + self.number


class Told(KeyboardInterrupt):
    """A thread of this process has something to say: an exception that no library takes for its own."""


def end_in_order() -> None:
    """Have these signals raise Left; called again where a library has put its own handlers there."""
    for number in _SIGNALS:
        signal.signal(number, _leave)


def _leave(number: int, frame: object) -> None:
    _heed_no_more()
    raise Left(number)


def _heed_no_more() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def signals_kept_from_threads() -> Iterator[None]:
    """Threads that are started in the block never take these signals. One that comes meanwhile is heard behind it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def signals_taken_aside() -> Iterator[None]:
    """For the block in the main thread nobody but us gets these signals, whatever handlers are set in it.

    Raises Left as soon as the main thread is in Python. Processes that are started in the block have them blocked.
    """
    taken: list[int] = []
    over, told = threading.Event(), threading.Event()
    watch = threading.Thread(target=_watch, args=(over, taken, told, threading.get_ident()), daemon=True)

    def leave(number: int, frame: object) -> None:
        if not told.is_set():
            told.set()
            _leave(taken[0], frame)

    own = signal.signal(_MESSAGE, leave)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    watch.start()
    try:
        yield
    finally:
        over.set()
        watch.join()
        signal.signal(_MESSAGE, own)
        if taken:
            _heed_no_more()  # again: the block may have set handlers behind it
        else:
            end_in_order()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if taken:  # the block made nothing of it
        _leave(taken[0], None)


def _watch(over: threading.Event, taken: list[int], told: threading.Event, main: int) -> None:
    deadline = 0.0
    while not over.is_set():
        found = signal.sigtimedwait(_SIGNALS, _LOOK_S)
        if found is not None and not taken:
            taken.append(found.si_signo)
            deadline = time.monotonic() + _PATIENCE_S
        if taken and not told.is_set():  # again and again: it may come just before the main thread begins to wait
            signal.pthread_kill(main, _MESSAGE)
            if time.monotonic() > deadline:  # it is in C, and asks nobody
                os.write(2, b"\nInterrupted, at once, since a library does not listen. The same command goes on.\n")
                os._exit(128 + taken[0])


@contextmanager
def told_by_a_thread() -> Iterator[None]:
    """In the block, in the main thread, `tell_thread` raises Told."""

    def tell(number: int, frame: object) -> None:
        raise Told

    own = signal.signal(_MESSAGE, tell)
    try:
        yield
    finally:
        signal.signal(_MESSAGE, own)


def tell_thread(ident: int) -> None:
    """Raise Told in this thread, which may wait for something; once."""
    signal.pthread_kill(ident, _MESSAGE)
