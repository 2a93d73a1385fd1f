"""`zooserve down`: stop the platform of a state folder, or clear away what an ended one left."""

import json
import signal
import time
from typing import TYPE_CHECKING, Annotated

import typer

from zooserve.processes.identity import Process, is_alive, send
from zooserve.processes.state import PlatformState, StateFolder
from zooserve.settings import Settings

if TYPE_CHECKING:
    from zooserve_cli.leftovers import Cleared

__all__ = ["down"]

_POLL_S = 0.1


def down(as_json: Annotated[bool, typer.Option("--json", help="Print what was stopped as JSON.")] = False) -> None:
    """Stop everything in order: router, Ray, engine, leaf, zoo. Also clears away what a killed platform left."""
    from zooserve_cli.leftovers import Cleared, clear, held

    folder = StateFolder(Settings().resolved().state_dir)
    state = folder.read_state()
    was_running = state is not None and state.is_running
    if state is not None and was_running:
        _stop(state)
    cleared = Cleared((), ())
    if folder.run.is_dir():
        _end_a_stuck_supervisor(state)
        with held(folder):
            cleared = clear(folder)
    _say(cleared, folder, was_running=was_running, as_json=as_json)


def _stop(state: PlatformState) -> None:
    """Ask it to stop, and wait as long as that may take by its own settings; it is a leftover after that."""
    supervisor = Process(state.pid, state.start_time)
    send(supervisor, signal.SIGTERM)
    deadline = time.monotonic() + state.stop_s
    while is_alive(supervisor) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def _end_a_stuck_supervisor(state: PlatformState | None) -> None:
    """It would hold the folder for ever; its servers are on record."""
    if state is not None and state.is_running:
        supervisor = Process(state.pid, state.start_time)
        send(supervisor, signal.SIGKILL)
        while is_alive(supervisor):
            time.sleep(_POLL_S)


def _say(cleared: "Cleared", folder: StateFolder, *, was_running: bool, as_json: bool) -> None:
    if as_json:
        found = {
            "was_running": was_running,
            "processes": [vars(record) for record in cleared.processes],
            "shared_memory": list(cleared.regions),
        }
        typer.echo(json.dumps(found, indent=1))
        return
    if was_running:
        typer.echo("Stopped.")
    if not cleared.nothing:
        typer.echo(
            f"Cleared away what was left: {len(cleared.processes)} processes, "
            f"{len(cleared.regions)} shared-memory regions."
        )
    elif not was_running:
        typer.echo(f"Nothing runs from {folder.root}.")
