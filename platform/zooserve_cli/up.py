"""`zooserve up`: one supervising process, in the foreground or detached from it."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zooserve.catalogue import CatalogueError
from zooserve.errors import ServerFailed, ZooserveError
from zooserve.processes.child import rotate, tail
from zooserve.processes.files import write_atomically
from zooserve.processes.state import Phase, PlatformState, StateFolder, unplanned
from zooserve.settings import Settings
from zooserve.weights.sources import Silent
from zooserve_cli.fetch import MODELS_HELP, fetch_weights, with_models

if TYPE_CHECKING:
    from zooserve.weights.sources import Progress
    from zooserve_cli.proof import Proof

__all__ = ["up"]

_POLL_S = 0.2
_LOG_FORMAT = "%(asctime)s %(levelname)-7s %(message)s"

Answers = dict[str, Any]
Changed = Callable[[PlatformState], None]
Ready = Callable[[PlatformState, Answers], None]


def up(
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return once it is ready; it stays up.")] = False,
    models: Annotated[str | None, typer.Option("--models", help=MODELS_HELP)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print addresses and proof as JSON.")] = False,
    daemon: Annotated[bool, typer.Option("--daemon", hidden=True)] = False,
) -> None:
    """Start the zoo, the leaf and the router, prove that they answer, stay until Ctrl-C."""
    settings = with_models(Settings().resolved(), models)
    if detach:
        with _ended_by_signals():
            _detach(settings, as_json=as_json)
    elif daemon:
        _supervise(settings, Silent(), lambda state: None, lambda state, proof: None)
    else:
        _in_foreground(settings, as_json=as_json)


def _in_foreground(settings: Settings, *, as_json: bool) -> None:
    from zooserve_cli import display
    from zooserve_cli.progress import progress_for

    out = display.console(stderr=as_json)
    steps = display.Steps(out)

    def ready(state: PlatformState, proof: Answers) -> None:
        took = steps.close()
        if as_json:
            display.proof_json(state, proof)
            return
        display.show_proof(out, proof)
        display.show_addresses(out, state)
        out.print(f"\nReady after {took:.1f} s. [bold]Ctrl-C[/] stops everything.")

    try:
        with progress_for(sys.stderr if as_json else sys.stdout) as progress:
            _supervise(settings, progress, steps.show, ready)
    finally:
        steps.close()
    out.print("Stopped.")


def _supervise(settings: Settings, progress: "Progress", changed: Changed, ready: Ready) -> None:
    from zooserve_cli.leftovers import clear, held

    folder = StateFolder(settings.state_dir)
    with _ended_by_signals(), held(folder):
        log = _log_to(folder)
        cleared = clear(folder)
        if not cleared.nothing:
            counts = len(cleared.processes), len(cleared.regions)
            log.warning("cleared after an earlier run: %d processes, %d shared-memory regions", *counts)
        try:
            _start_and_stay(settings, folder, progress, changed, ready)
        except (KeyboardInterrupt, SystemExit):  # asked to, before there was anything to stop
            _end_state(folder, "stopped", "")
            raise
        except BaseException as exc:
            error = str(exc) if isinstance(exc, (ZooserveError, CatalogueError)) else repr(exc)
            _end_state(folder, "failed", error)
            log.error("%s", error)
            raise
        _end_state(folder, "stopped", "")


def _start_and_stay(
    settings: Settings, folder: StateFolder, progress: "Progress", changed: Changed, ready: Ready
) -> None:
    from zooserve_cli.startup import prepare

    folder.proof_file.unlink(missing_ok=True)
    supervisor = prepare(settings, folder, progress, changed)

    def proven(proof: "Proof") -> None:
        write_atomically(folder.proof_file, json.dumps(proof.as_json()))
        ready(supervisor.state, proof.as_json())

    asyncio.run(supervisor.run(proven))


def _end_state(folder: StateFolder, phase: Phase, error: str) -> None:
    state = folder.read_state()
    if state is None or state.pid != os.getpid():
        state = unplanned(phase)
    try:
        folder.write_state(state.model_copy(update={"phase": phase, "error": error}))
    except OSError as exc:  # it is over all the same, and the error that ended it matters more
        logging.getLogger("zooserve.supervisor").error("the last state could not be written: %s", exc)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """For the block SIGTERM and SIGHUP raise SystemExit, so that whatever runs then ends the processes it started."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    # nohup has SIGHUP ignored: it stays so.
    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _log_to(folder: StateFolder) -> logging.Logger:
    logger = logging.getLogger("zooserve")
    rotate(folder.log_file("supervisor"))
    handler = logging.FileHandler(folder.log_file("supervisor"), encoding="utf-8")
    handler.setFormatter(logging.Formatter(_LOG_FORMAT))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    return logging.getLogger("zooserve.supervisor")


def _detach(settings: Settings, *, as_json: bool) -> None:
    from zooserve_cli import display
    from zooserve_cli.leftovers import held
    from zooserve_cli.progress import progress_for

    folder = StateFolder(settings.state_dir)
    with held(folder):  # refuse here and now, where the user sees it
        log = folder.log_file("supervisor")
        rotate(log)
    out = display.console(stderr=as_json)
    with progress_for(sys.stderr if as_json else sys.stdout) as progress:
        fetch_weights(settings, progress=progress)
    steps = display.Steps(out)
    with log.open("ab") as file:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "zooserve_cli", "up", "--daemon", f"--models={settings.models}"],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        state = _wait_until_ready(daemon, folder, steps.show)
    except (KeyboardInterrupt, SystemExit):
        daemon.terminate()
        daemon.wait()
        raise
    finally:
        took = steps.close()
    proof = json.loads(folder.proof_file.read_text(encoding="utf-8"))
    if as_json:
        display.proof_json(state, proof)
        return
    display.show_proof(out, proof)
    display.show_addresses(out, state)
    out.print(f"\nReady after {took:.1f} s, as process {state.pid}. `zooserve down` stops it.")


def _wait_until_ready(daemon: "subprocess.Popen[bytes]", folder: StateFolder, changed: Changed) -> PlatformState:
    """Follow the daemon's state until it is ready. Raises ServerFailed with its error and its log's end."""
    while True:
        ended = daemon.poll() is not None
        state = folder.read_state()
        if state is not None and state.pid == daemon.pid:
            changed(state)
            if state.phase == "ready" and not ended:
                return state
        if ended:
            raise ServerFailed(_why(daemon, folder, state))
        time.sleep(_POLL_S)


def _why(daemon: "subprocess.Popen[bytes]", folder: StateFolder, state: PlatformState | None) -> str:
    log = folder.log_file("supervisor")
    if state is not None and state.pid == daemon.pid and state.error:
        return f"{state.error}\nThe whole log: {log}"
    return "\n".join([f"The supervisor ended (exit code {daemon.returncode}). The end of {log}:", *tail(log, 15)])
