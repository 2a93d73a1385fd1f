"""A Ray of this job's own, or a cluster's, quiet and bounded; gone in every ending that this process lives to see.

A raylet or a GCS that is killed is noticed within a second: Ray itself takes ten to sixty, and then tells pages of it.

After a kill -9 Ray's own processes end by themselves: the raylet and the GCS with their parent, workers within seconds,
Ray's two agents when they give the GCS up (measured: within two minutes). The next run ends what is left before that.
"""

import hashlib
import logging
import os
import secrets
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from zooserve.errors import JobStopped, MissingPart
from zooserve.processes.identity import command_of, descendants, is_alive, process_table
from zooserve.processes.ports import free_ports
from zooserve.processes.records import ProcessRecords, Record
from zooserve_cli.reembedding.endings import (
    Told,
    signals_kept_from_threads,
    signals_taken_aside,
    tell_thread,
    told_by_a_thread,
)

__all__ = ["RayPlan", "ray_running"]

_OBJECT_STORE_BYTES = 256 * 2**20
_BLOCK_BYTES = 16 * 2**20
_GRACE_S = 3.0
_LOOK_S = 0.5
_CONNECT_S = 10.0
_VITAL = ("gcs_server", "raylet")


class RayPlan:
    """Where a job's Ray runs."""

    def __init__(self, address: str | None, workers: int, records: Path) -> None:
        self.address = address
        self.workers = workers
        self.records = ProcessRecords(records)
        digest = hashlib.sha256(str(records).encode()).hexdigest()[:8]
        # Not in the job's folder: a socket's path has 107 bytes at most.
        self.folder = Path(tempfile.gettempdir()) / f"zsr-{digest}"

    def take_stock(self) -> None:
        """Write down what runs below this process: all of it is Ray's."""
        below = descendants([os.getpid()], process_table())
        self.records.write(Record(each.pid, each.start_time, "ray", _program(each.pid)) for each in below)


def _program(pid: int) -> str:
    """What it runs; of a worker nothing more, whose title changes with every task."""
    return command_of(pid).partition(" ")[0].partition("::")[0]


@contextmanager
def ray_running(plan: RayPlan) -> Iterator[None]:
    """For the block there is a Ray, with Ray Data set up. Raises MissingPart, JobStopped where it does not start."""
    _clear(plan)
    if plan.address is None:
        os.environ.update(_environment())
    try:
        with signals_kept_from_threads():
            import ray
            import ray.data
    except ImportError as exc:
        raise MissingPart("Ray Data is not installed: `pip install 'zooserve[platform]'`.") from exc
    told = ray._private.worker.print_to_stdstream
    try:
        # What Ray tells of its nodes and workers would be on our stdout, in the middle of --json.
        ray._private.worker.print_to_stdstream = lambda data, ignore_prefix: None
        with signals_taken_aside():  # Ray sets a handler of its own, and one in C that writes a dump
            _start(ray, plan)
        _bound(ray.data)
        with nullcontext() if plan.address else _watched(plan):
            yield
    finally:
        if plan.address is None:
            plan.take_stock()  # also of a Ray that was left while it started, which its shutdown does not know
        ray.shutdown()
        ray._private.worker.print_to_stdstream = told
        if plan.address is None:
            _clear(plan)


def _start(ray: Any, plan: RayPlan) -> None:
    from zooserve_router.ray_node import start_ray

    logging.getLogger("ray._private.worker").setLevel(logging.ERROR)  # that it has started
    try:
        if plan.address is not None:
            _require_listener(plan.address)
            ray.init(address=plan.address, log_to_driver=False, logging_level=logging.ERROR)
            return
        plan.folder.mkdir(mode=0o700, exist_ok=True)
        with _signals_for_children():
            start_ray(plan.folder, free_ports(1)[0], cores=plan.workers, object_store_bytes=_OBJECT_STORE_BYTES)
    except (RuntimeError, ValueError, OSError, OverflowError) as exc:
        where = plan.address or "on this machine"
        raise JobStopped(f"Ray does not start {where}: {exc}") from exc
    plan.take_stock()


def _require_listener(address: str) -> None:
    """Raises OSError where nobody listens: Ray would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()


@contextmanager
def _watched(plan: RayPlan) -> Iterator[None]:
    """For the block what runs below is written down. Raises JobStopped once one of Ray's own processes is gone."""
    over, lost = threading.Event(), list[str]()
    vital = {each.process: name for each in plan.records.read() for name in _VITAL if each.command.endswith(f"/{name}")}
    main = threading.get_ident()

    def watch() -> None:
        while not over.wait(_LOOK_S):
            plan.take_stock()
            lost.extend(name for process, name in vital.items() if not is_alive(process))
            if lost:
                tell_thread(main)
                return

    thread = threading.Thread(target=watch, daemon=True)
    try:
        with told_by_a_thread():
            with signals_kept_from_threads():
                thread.start()
            yield
    except Told as exc:
        raise JobStopped(
            f"Ray failed: its {lost[0]} has ended, killed perhaps. What is done stays; the same command goes on from "
            "there."
        ) from exc
    finally:
        over.set()
        thread.join()


@contextmanager
def _signals_for_children() -> Iterator[None]:
    """For the block the processes that Ray starts hear SIGTERM, although this one has it blocked meanwhile."""
    from ray._private import services

    class Hearing(services.ConsolePopen):  # type: ignore[misc]
        def __init__(self, *given: Any, preexec_fn: Any = None, **named: Any) -> None:
            def prepare() -> None:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGHUP))
                if preexec_fn is not None:
                    preexec_fn()

            super().__init__(*given, preexec_fn=prepare, **named)

    own = services.ConsolePopen
    services.ConsolePopen = Hearing
    try:
        yield
    finally:
        services.ConsolePopen = own


def _bound(data: Any) -> None:
    """Blocks of 16 MiB, so that what is in flight is a few parts; and no word of Ray Data's on our terminal."""
    context = data.DataContext.get_current()
    context.target_max_block_size = _BLOCK_BYTES
    context.enable_progress_bars = False
    context.enable_operator_progress_bars = False
    context.print_on_execution_start = False
    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _environment() -> dict[str, str]:
    """Read by Ray when it is imported."""
    return {
        "RAY_USAGE_STATS_ENABLED": "0",
        # Ray listens on all interfaces whatever it is told: nobody without the token is heard.
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        # Python processes start ten times slower beside busy neighbours; Ray would end them as stuck.
        "RAY_agent_register_timeout_ms": "180000",
        "RAY_worker_register_timeout_seconds": "180",
        "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
        "RAY_DEDUP_LOGS": "0",
        # What fails is told by its exception.
        "RAY_IGNORE_UNHANDLED_ERRORS": "1",
    }


def _clear(plan: RayPlan) -> None:
    """End what an earlier run of this job left behind, and only that."""
    plan.records.reap(_GRACE_S)
    plan.records.write([])
    with suppress(OSError):
        shutil.rmtree(plan.folder, ignore_errors=True)
