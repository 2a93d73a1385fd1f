"""What the kernel does for a supervisor: orphans below it become its children, and its children end with it."""

import ctypes
import os
import signal
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

__all__ = ["adopt_orphans", "collect_zombies", "ends_with_parent"]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Make this process the parent of every orphan below it, instead of init."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def ends_with_parent() -> Callable[[], None] | None:
    """What Popen runs in the child so that it gets SIGTERM the moment its parent dies, however that dies.

    None off the main thread: the kernel counts the death of the starting *thread*, so that a child
    started from a pool would end with the pool's thread.
    """
    if threading.current_thread() is not threading.main_thread():
        return None
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def in_child() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it died between fork and prctl
            os.kill(os.getpid(), signal.SIGTERM)

    return in_child


def collect_zombies(own: Collection[int | None]) -> None:
    """Wait for the adopted children that have ended; `own` are pids that somebody else waits for."""
    for task in Path("/proc/self/task").iterdir():
        for word in (task / "children").read_text().split():
            if int(word) not in own:
                with suppress(ChildProcessError):
                    os.waitpid(int(word), os.WNOHANG)
