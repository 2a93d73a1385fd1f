"""`zooserve logs`: the end of a server's log, and what is added to it."""

import time
from pathlib import Path
from typing import Annotated

import typer

from zooserve.processes.child import tail
from zooserve.processes.state import StateFolder
from zooserve.settings import Settings

__all__ = ["logs"]

_POLL_S = 0.2


def logs(
    name: Annotated[str, typer.Argument(help="supervisor, router, zoo or leaf.")] = "supervisor",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is added.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many lines from the end.")] = 40,
) -> None:
    """Print the end of one server's log."""
    folder = StateFolder(Settings().resolved().state_dir)
    file = folder.log_file(name)
    if not file.is_file():
        there = ", ".join(sorted(path.stem for path in folder.logs.glob("*.log"))) or "none yet"
        raise typer.BadParameter(f"there is no log named {name!r} (there are: {there})", param_hint="NAME")
    for line in tail(file, lines) if lines else ():
        typer.echo(line)
    if follow:
        _follow(file)


def _follow(file: Path) -> None:
    with file.open(encoding="utf-8", errors="replace") as log:
        log.seek(0, 2)
        while True:
            if added := log.read():
                typer.echo(added, nl=False)
            else:
                time.sleep(_POLL_S)
