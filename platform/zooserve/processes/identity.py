"""A process by pid and start time: the pair is unique until the machine restarts, a pid alone is not.

Read from /proc directly: field 22 of `stat` is an exact tick count, where a float of seconds would round.
"""

import os
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "Process",
    "age_s",
    "boot_id",
    "command_of",
    "descendants",
    "end",
    "find",
    "is_alive",
    "process_table",
    "send",
]

_PROC = Path("/proc")
_POLL_S = 0.05


@dataclass(frozen=True, order=True)
class Process:
    """One process of this boot."""

    pid: int
    start_time: int
    """Ticks since boot, as /proc/<pid>/stat has it."""


@dataclass(frozen=True)
class _Stat:
    parent: int
    state: str
    start_time: int


def age_s(process: Process) -> float:
    """How long it has been running."""
    since_boot = float((_PROC / "uptime").read_text().split()[0])
    return since_boot - process.start_time / os.sysconf("SC_CLK_TCK")


def boot_id() -> str:
    """This boot of the machine; a record of another one names nobody."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def find(pid: int) -> Process | None:
    """The process that has this pid now, unless it has ended."""
    stat = _stat(pid)
    return None if stat is None or stat.state in "ZX" else Process(pid, stat.start_time)


def is_alive(process: Process) -> bool:
    """Whether exactly this process still runs. A zombie does not."""
    return find(process.pid) == process


def command_of(pid: int) -> str:
    """The command line, or "" once the process is gone."""
    try:
        raw = (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return ""
    return raw.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")


def process_table() -> dict[int, int]:
    """The parent of every process that has not ended."""
    parents = {}
    for entry in os.listdir(_PROC):  # noqa: PTH208 (strings; a Path per process costs three times as much)
        if entry.isdigit() and (stat := _stat(int(entry))) and stat.state not in "ZX":
            parents[int(entry)] = stat.parent
    return parents


def descendants(roots: Iterable[int], parents: Mapping[int, int]) -> set[Process]:
    """Every process below `roots` (the roots themselves left out), from one process table."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    seen: set[int] = set()
    queue = list(roots)
    while queue:
        for child in children.get(queue.pop(), ()):
            if child not in seen:
                seen.add(child)
                queue.append(child)
    return {process for pid in seen if (process := find(pid))}


def send(process: Process, number: signal.Signals) -> bool:
    """Signal exactly this process. False if it is gone (a reused pid is never hit: the handle is taken first)."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if not is_alive(process):
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def end(processes: Iterable[Process], grace_s: float) -> set[Process]:
    """SIGTERM, then SIGKILL after `grace_s`, to all of them at once; those that were still alive at the start."""
    alive = {process for process in processes if send(process, signal.SIGTERM)}
    left = _wait(alive, grace_s)
    for process in left:
        send(process, signal.SIGKILL)
    _wait(left, grace_s)
    return alive


def _wait(processes: set[Process], timeout_s: float) -> set[Process]:
    deadline = time.monotonic() + timeout_s
    left = {process for process in processes if is_alive(process)}
    while left and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        left = {process for process in left if is_alive(process)}
    return left


def _stat(pid: int) -> _Stat | None:
    try:
        # The supervisor reads some two hundred of these a second. With a Path and a decoder: 85 us each, so: 38.
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123
            text = file.read()
    except OSError:
        return None
    # The second field is the program's name in brackets, and may itself hold spaces and brackets.
    fields = text.rpartition(b")")[2].split()
    return _Stat(parent=int(fields[1]), state=fields[0].decode(), start_time=int(fields[19]))
