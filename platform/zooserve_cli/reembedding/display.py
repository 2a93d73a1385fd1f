"""How a job shows where it is: a bar with the time left on a terminal, elsewhere a line every so often."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TextIO

from zooserve_cli.reembedding.endings import signals_kept_from_threads

__all__ = ["Screen", "screen_for"]

_LINE_EVERY_S = 10.0


class Screen(Protocol):
    """What a job tells."""

    def say(self, text: str) -> None:
        """One step, or one fact."""

    def begin(self, total: int, done: int) -> None:
        """Texts are embedded from here on; `done` were before."""

    def at(self, done: int, dead: int) -> None:
        """So many of the total are done, the dead among them."""


class _Lines:
    """For logs."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._total = self._before = 0
        self._began_s = self._told_s = clock()

    def say(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def begin(self, total: int, done: int) -> None:
        self._total, self._before = total, done
        self._began_s = self._told_s = self._clock()

    def at(self, done: int, dead: int) -> None:
        now = self._clock()
        if now - self._told_s < _LINE_EVERY_S:
            return
        self._told_s = now
        self.say(line(done, self._total, dead, (done - self._before) / max(now - self._began_s, 1e-9)))


def line(done: int, total: int, dead: int, per_s: float) -> str:
    """One line of progress.

    >>> line(500, 2000, 1, 25.0)
    '500 of 2,000 texts (25%), 25/s, 1 min left, 1 dead'
    """
    whole = max(total, done)
    left = f"{_duration((whole - done) / per_s)} left" if per_s > 0 else "no time known yet"
    dead_told = f", {dead:,} dead" if dead else ""
    return f"{done:,} of {whole:,} texts ({done / max(whole, 1):.0%}), {per_s:.0f}/s, {left}{dead_told}"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"


class _Bar:
    """For people."""

    def __init__(self, progress: Any) -> None:
        self._progress = progress
        self._task: Any = None

    def say(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def begin(self, total: int, done: int) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task("embedding", total=max(total, done), completed=done, dead="")

    def at(self, done: int, dead: int) -> None:
        if self._task is not None:
            self._progress.update(self._task, completed=done, dead=f"{dead:,} dead" if dead else "")


@contextmanager
def screen_for(stream: TextIO) -> Iterator[Screen]:
    """A bar if `stream` is a terminal, else lines."""
    if not stream.isatty():
        yield _Lines(stream)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(show_speed=True),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[dead]}"),
    )
    # No redirecting: what Ray or Qdrant may print must not land in the middle of a bar's thread.
    progress = Progress(*columns, console=Console(file=stream), redirect_stdout=False, redirect_stderr=False)
    with signals_kept_from_threads():
        progress.start()
    try:
        yield _Bar(progress)
    finally:
        progress.stop()
