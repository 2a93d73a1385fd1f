"""Progress on a terminal as bars, elsewhere as one line per step."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from zooserve.weights.sources import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

__all__ = ["progress_for"]


class _Lines:
    """One line when a step starts."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def begin(self, what: str, total: int | None = None) -> None:
        size = f" ({total / 1e6:.1f} MB)" if total else ""
        print(f"{what}{size}", file=self._stream, flush=True)

    def at(self, done: int) -> None:
        """Lines do not move."""

    def end(self) -> None:
        """The next line says so."""


class _Bars:
    """One bar per step; a step without a length is a pulse."""

    def __init__(self, bars: "Bars") -> None:
        self._bars = bars
        self._task: TaskID | None = None

    def begin(self, what: str, total: int | None = None) -> None:
        self._task = self._bars.add_task(what, total=total)

    def at(self, done: int) -> None:
        if self._task is not None:
            self._bars.update(self._task, completed=done)

    def end(self) -> None:
        if self._task is not None:
            total = self._bars.tasks[self._task].total or 1
            self._bars.update(self._task, total=total, completed=total)


@contextmanager
def progress_for(stream: TextIO) -> Iterator[Progress]:
    """Bars if `stream` is a terminal, else lines."""
    if not stream.isatty():
        yield _Lines(stream)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Bars(*columns, console=Console(file=stream)) as bars:
        yield _Bars(bars)
