"""`zooserve down`: stop the platform of a state folder, or clear away what an ended one left."""

import json
import signal
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from zooserve.errors import AlreadyRunning, SetupError
from zooserve.processes.identity import Process, is_alive, send
from zooserve.processes.state import PlatformState, StateFolder
from zooserve.settings import Settings

if TYPE_CHECKING:
    from zooserve_cli.leftovers import Cleared

__all__ = ["down"]

_POLL_S = 0.1
_OTHERS_S = 60.0
"""Another `down` needs some seconds for what was left; who takes longer is stuck."""


def down(as_json: Annotated[bool, typer.Option("--json", help="Print what was stopped as JSON.")] = False) -> None:
    """Stop everything in order: router, Ray, engine, leaf, zoo. Also clears away what a killed platform left."""
    from zooserve_cli.leftovers import Cleared, clear

    folder = StateFolder(Settings().resolved().state_dir)
    state = folder.read_state()
    was_running = state is not None and state.is_running
    if state is not None and was_running:
        _stop(state)
    cleared = Cleared((), ())
    if folder.run.is_dir():
        _end_a_stuck_supervisor(state)
        with ExitStack() as holding:
            _hold(folder, holding)
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


def _hold(folder: StateFolder, holding: ExitStack) -> None:
    """Hold the state folder as long as `holding` lasts, once another `zooserve down` is through with it.

    Raises AlreadyRunning for a platform that was started meanwhile, SetupError if the other one does not end.
    """
    from zooserve_cli.leftovers import held

    deadline = time.monotonic() + _OTHERS_S
    wait_s = 0.0
    while True:
        try:
            holding.enter_context(held(folder, wait_s))
            return
        except AlreadyRunning as exc:
            if _is_taken_by_a_platform(folder):
                raise
            if time.monotonic() > deadline:
                raise SetupError(
                    f"Another `zooserve down`, or an `up`, has held {folder.root} for {_OTHERS_S:.0f} s: see which it "
                    f"is (`fuser {folder.lock_file}`), then try again."
                ) from exc
        if not wait_s:
            typer.echo("Another `zooserve down` is under way here: waiting for it.", err=True)
        wait_s = 1.0


def _is_taken_by_a_platform(folder: StateFolder) -> bool:
    state = folder.read_state()
    return state is not None and state.is_running


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
