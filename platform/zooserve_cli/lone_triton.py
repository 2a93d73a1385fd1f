"""The process above a Triton that runs alone: it looks after it, and leaves nothing of it behind."""

import asyncio
import logging
import os
import signal
from contextlib import suppress

import httpx

from zooserve.errors import ServerFailed
from zooserve.processes.identity import descendants, end, process_table
from zooserve.processes.kinship import adopt_orphans, collect_zombies
from zooserve.processes.records import ProcessRecords
from zooserve.processes.state import Phase, StateFolder, unplanned
from zooserve.settings import TritonSettings, WatchSettings
from zooserve.triton.server import TritonServer
from zooserve.triton.watch import Reload, Remedy, Restart, Watch, backoff_s, tell_new_faults
from zooserve_cli.bounds import LEFT_GRACE_S

__all__ = ["LoneTriton"]

_log = logging.getLogger("zooserve.triton")
_STOCK_INTERVAL_S = 1.0


class LoneTriton:
    """One Triton from its start to its end.

    A model with a dead stub is loaded again, as a platform does. For a server that has ended, that hangs or does not
    start this process ends with an error: whoever runs it (a container engine) starts both anew.
    """

    def __init__(
        self, server: TritonServer, watch: Watch, triton: TritonSettings, settings: WatchSettings, folder: StateFolder
    ) -> None:
        self._server = server
        self._watch = watch
        self._triton = triton
        self._settings = settings
        self._folder = folder
        self._records = ProcessRecords(folder.records_file)
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Stay until a signal comes, then stop it in order. Raises ServerFailed where it cannot go on."""
        adopt_orphans()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._stopping.set)
        self._tell("starting")
        self._server.start()
        work = asyncio.create_task(self._work())
        stock = asyncio.create_task(self._take_stock())
        told = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({work, told}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stock.cancel()
            told.cancel()
            await self._stop()
            # What was waited for in a thread sees the end of the server.
            (fault,) = await asyncio.gather(work, return_exceptions=True)
        if isinstance(fault, BaseException) and not self._stopping.is_set():
            raise fault

    async def _work(self) -> None:
        await asyncio.to_thread(self._server.wait_until_loaded, self._triton.start_timeout_s)
        self._tell("ready")
        at = self._server.addresses
        _log.info("%s: loaded; http %s, grpc %s, metrics %s", self._server.name, at.http, at.grpc, at.metrics)
        in_a_row = 0
        told: dict[str, str] = {}
        async with httpx.AsyncClient(trust_env=False) as http:
            while not await self._pause(self._settings.interval_s):
                remedies = await self._watch.look(http)
                tell_new_faults(_log, self._server.name, self._watch.faults, told)
                await self._pause(backoff_s(self._settings, in_a_row) if remedies else 0)
                for remedy in remedies:
                    await self._apply(remedy, http)
                in_a_row = in_a_row + 1 if remedies else max(0, in_a_row - 1)

    async def _apply(self, remedy: Remedy, http: httpx.AsyncClient) -> None:
        name = self._server.name
        if isinstance(remedy, Restart):
            raise ServerFailed(f"{name}: {remedy.cause}.")
        if isinstance(remedy, Reload):
            _log.warning("%s: loading %s again: %s", name, remedy.model, remedy.cause)
            if fault := await self._watch.reload(http, remedy.model):
                _log.error("%s: %s did not load again: %s", name, remedy.model, fault)
            else:
                _log.info("%s: %s works again", name, remedy.model)

    async def _pause(self, seconds: float) -> bool:
        """Wait that long; True as soon as it is to stop."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)
        return self._stopping.is_set()

    async def _take_stock(self) -> None:
        while True:
            self._record()
            await asyncio.sleep(_STOCK_INTERVAL_S)

    def _record(self) -> None:
        pid = self._server.pid
        try:
            self._records.take_stock(os.getpid(), {} if pid is None else {pid: self._server.name})
        except OSError as exc:
            _log.error("the process records could not be written: %s", exc)
        collect_zombies({self._server.last_pid})

    async def _stop(self) -> None:
        for step in (self._tell_stopping, self._record, self._stop_server, self._end_what_is_left, self._tidy):
            try:
                await asyncio.to_thread(step)
            except Exception:
                _log.exception("stopping: a step failed")

    def _tell_stopping(self) -> None:
        _log.info("%s: stopping", self._server.name)
        self._tell("stopping")

    def _stop_server(self) -> None:
        self._server.stop(self._triton.stop_timeout_s)

    def _end_what_is_left(self) -> None:
        end(descendants([os.getpid()], process_table()), LEFT_GRACE_S)
        collect_zombies({self._server.last_pid})

    def _tidy(self) -> None:
        self._records.write([])
        self._tell("stopped")

    def _tell(self, phase: Phase) -> None:
        at, name = self._server.addresses, self._server.name
        addresses = {f"{name}_http": at.http, f"{name}_grpc": at.grpc, f"{name}_metrics": at.metrics}
        self._folder.write_state(unplanned(phase).model_copy(update=addresses))
