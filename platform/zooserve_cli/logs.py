"""`zooserve logs`: the end of a server's log, and what is added to it."""

import os
import time
from collections import deque
from pathlib import Path
from typing import Annotated, TextIO

import typer

from zooserve.processes.state import StateFolder
from zooserve.settings import Settings

__all__ = ["logs"]

_POLL_S = 0.2


def logs(
    name: Annotated[str, typer.Argument(help="supervisor, router, zoo, leaf, engine or access.")] = "supervisor",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is added.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many lines from the end.")] = 40,
) -> None:
    """Print the end of one server's log."""
    settings = Settings().resolved()
    folder = StateFolder(settings.state_dir)
    file = settings.access_log_file if name == "access" else folder.log_file(name)
    if not file.is_file():
        files = [*folder.logs.glob("*.log"), *settings.access_log_file.parent.glob("access.jsonl")]
        there = ", ".join(sorted(path.stem for path in files)) or "none yet"
        raise typer.BadParameter(f"there is no log named {name!r} (there are: {there})", param_hint="NAME")
    with file.open(encoding="utf-8", errors="replace") as log:
        # One reading of the file: what is added after its end here is what `follow` goes on with.
        for line in deque(log, maxlen=lines):
            typer.echo(line, nl=False)
        if not follow:
            return
        _follow(log, file)
    while True:
        with file.open(encoding="utf-8", errors="replace") as log:
            _follow(log, file)


def _follow(log: TextIO, file: Path) -> None:
    """Print what is added, until the server has set this log aside and `file` is a new one."""
    while True:
        aside = _is_aside(log, file)
        if added := log.read():
            typer.echo(added, nl=False)
        elif aside:  # known before the last reading: nothing was added since
            return
        else:
            time.sleep(_POLL_S)


def _is_aside(log: TextIO, file: Path) -> bool:
    return file.exists() and not os.path.samestat(os.fstat(log.fileno()), file.stat())
