"""The process above a router that runs alone: it holds the state folder, and leaves nothing of the router behind."""

import asyncio
import logging
import os
import signal
from contextlib import suppress
from functools import partial

from zooserve.errors import ServerFailed
from zooserve.processes.child import Child
from zooserve.processes.identity import descendants, end, process_table
from zooserve.processes.kinship import adopt_orphans, collect_zombies
from zooserve.processes.records import ProcessRecords, Record
from zooserve.processes.state import Phase, StateFolder, unplanned
from zooserve.settings import Settings
from zooserve_cli.bounds import LEFT_GRACE_S, router_stop_s, stop_s
from zooserve_cli.leftovers import remove_sockets
from zooserve_cli.plan import reachable
from zooserve_cli.router_life import RouterLife, answers
from zooserve_cli.router_process import RouterProcess, ray_ports

__all__ = ["LoneRouter"]

_log = logging.getLogger("zooserve.route")
_STOCK_INTERVAL_S = 1.0
_LIVE_TIMEOUT_S = 5.0


class LoneRouter:
    """One router from its start to its end. It writes where this process does: a container's main process is read.

    What Ray cannot mend is not mended here: this process ends with an error, and whoever runs it starts it anew.
    """

    def __init__(self, settings: Settings, folder: StateFolder) -> None:
        self._settings = settings
        self._folder = folder
        self._child = Child("router", folder.log_file("router"), shares_output=True)
        self._ports = ray_ports(settings)
        self._records = ProcessRecords(folder.records_file)
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Stay until the router ends or a signal comes, stop everything; the exit code as a shell would have it."""
        adopt_orphans()
        router = RouterProcess(self._child, self._settings, self._folder, self._ports)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._stopping.set)
        try:
            # There is no supervisor to tell apart starting and ready: /health/ready does.
            self._tell("ready")
            router.start()
            lives = partial(answers, reachable(self._settings), _LIVE_TIMEOUT_S)
            fault = await self._stay(RouterLife(router, self._settings.watch, lives))
        finally:
            await self._stop()
        if self._stopping.is_set() and not router.runs_ray:
            return 0  # it was stopped before it could end in order
        if fault:
            raise ServerFailed(f"router: {fault}.")
        code = self._child.exit_code or 0
        return code if code >= 0 else 128 - code

    async def _stay(self, life: RouterLife) -> str:
        """Until it ends or is to stop; what is wrong with it, where it can stay no longer."""
        while self._child.pid is not None and not self._stopping.is_set():
            try:
                stock = self._record()
            except OSError as exc:
                _log.error("the process records could not be written: %s", exc)
            else:
                if fault := await asyncio.to_thread(life.fault, stock):
                    return fault
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _STOCK_INTERVAL_S)
        return ""

    def _record(self) -> list[Record]:
        own = {} if self._child.pid is None else {self._child.pid: self._child.name}
        stock = self._records.take_stock(os.getpid(), own)
        collect_zombies({self._child.last_pid})
        return stock

    async def _stop(self) -> None:
        for step in (self._tell_stopping, self._record, self._stop_router, self._end_what_is_left, self._tidy):
            try:
                await asyncio.to_thread(step)
            except Exception:
                _log.exception("stopping: a step failed")

    def _tell_stopping(self) -> None:
        self._tell("stopping")

    def _stop_router(self) -> None:
        self._child.stop(router_stop_s(self._settings))

    def _end_what_is_left(self) -> None:
        end(descendants([os.getpid()], process_table()), LEFT_GRACE_S)
        collect_zombies({self._child.last_pid})

    def _tidy(self) -> None:
        remove_sockets(self._folder)
        self._records.write([])
        self._tell("stopped")

    def _tell(self, phase: Phase) -> None:
        zoo, leaf = self._settings.zoo, self._settings.leaf
        addresses = {
            "router": reachable(self._settings),
            "zoo_http": f"{zoo.host}:{zoo.http_port}" if zoo.http_port else "",
            "leaf_grpc": f"{leaf.host}:{leaf.grpc_port}" if leaf.grpc_port else "",
            "haproxy_metrics": f"127.0.0.1:{self._ports.haproxy_metrics}",
            "ray_metrics": f"127.0.0.1:{self._ports.ray_metrics}",
        }
        told = {**addresses, "stop_s": stop_s(self._settings)}
        self._folder.write_state(unplanned(phase).model_copy(update=told))
