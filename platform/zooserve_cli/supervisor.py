"""The one process that owns a platform: starts its servers, looks after them, and ends every one of them."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

import httpx

from zooserve.catalogue import Catalogue
from zooserve.engine.server import EngineServer
from zooserve.engine.watch import EngineWatch
from zooserve.errors import ServerFailed
from zooserve.processes.child import Child
from zooserve.processes.identity import descendants, end, process_table
from zooserve.processes.kinship import adopt_orphans, collect_zombies
from zooserve.processes.records import ProcessRecords, Record
from zooserve.processes.shared_memory import remove_regions
from zooserve.processes.state import Phase, PlatformState, Step
from zooserve.triton.server import TritonServer
from zooserve.triton.warmups import WarmupLog
from zooserve.triton.watch import Reload, Remedy, Restart, Watch, backoff_s, tell_new_faults
from zooserve_cli.bounds import LEFT_GRACE_S, RAY_STOP_S, router_stop_s
from zooserve_cli.leftovers import remove_sockets
from zooserve_cli.plan import Plan
from zooserve_cli.proof import Proof, prove
from zooserve_cli.trace_keeping import traces_kept
from zooserve_observability.supervision import SupervisorMetrics

__all__ = ["Supervisor"]

_log = logging.getLogger("zooserve.supervisor")
_STOCK_INTERVAL_S = 1.0
_READY_POLL_S = 0.25
_READY_TIMEOUT_S = 300.0
_RAY_HEAD_START_S = 30.0
_START_ATTEMPTS = 3
# Ray replaces a dead replica by itself; within this time on a busy machine too.
_RAY_HEALS_S = 90.0


_Server = TritonServer | EngineServer
_Watch = Watch | EngineWatch


@dataclass
class _Looks:
    """What the looks at one server have led to so far."""

    remedies_in_a_row: int = 0
    told: dict[str, str] = field(default_factory=dict)
    well: float = field(default_factory=time.monotonic)
    """When it was last found well."""


class Supervisor:
    """One platform from its start to its end."""

    def __init__(
        self,
        plan: Plan,
        catalogue: Catalogue,
        state: PlatformState,
        metrics: SupervisorMetrics,
        changed: Callable[[PlatformState], None],
    ) -> None:
        self._plan = plan
        self._catalogue = catalogue
        self.state = state
        self._metrics = metrics
        self._changed = changed
        self._records = ProcessRecords(plan.folder.records_file)
        self._warmups = {server.name: WarmupLog(plan.folder.log_file(server.name)) for server in (plan.zoo, plan.leaf)}
        self._stock: list[Record] = []
        self._stopping = asyncio.Event()
        self._untold = False

    async def run(self, ready: Callable[[Proof], None]) -> None:
        """Start everything, call `ready` once it has proven itself, stay until a signal, stop everything."""
        adopt_orphans()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._stopping.set)
        self._tell(phase="starting")
        # Until the zoo has stopped: a Triton whose exports nobody takes hangs in its own shutdown.
        async with traces_kept(self._plan.settings, self._plan.folder.traces_file, self._metrics.traces):
            try:
                async with asyncio.TaskGroup() as group:
                    work = group.create_task(self._work(ready))
                    stock = group.create_task(self._take_stock())
                    waiting = group.create_task(self._stopping.wait())
                    await asyncio.wait({work, waiting, stock}, return_when=asyncio.FIRST_COMPLETED)
                    for task in (work, stock, waiting):
                        task.cancel()
            except BaseExceptionGroup as group:
                raise _first(group) from None
            finally:
                await self._stop()

    async def _work(self, ready: Callable[[Proof], None]) -> None:
        plan = self._plan
        self._begin_counts()
        async with httpx.AsyncClient(limits=httpx.Limits(max_keepalive_connections=4), trust_env=False) as http:
            await self._start_all(http)
            async with self._step("first embedding and first chat"):
                proof = await prove(plan.router_address, self._catalogue, http)
            # The proof first: whoever sees the phase `ready` reads the proof's file next.
            ready(proof)
            self._tell(phase="ready")
            _log.info("ready at http://%s", plan.router_address)
            async with asyncio.TaskGroup() as group:
                for server, watch in self._watched():
                    look = partial(self._look_at, server, watch, _Looks(), http)
                    group.create_task(self._keep(server.name, look))
                group.create_task(self._keep("router", partial(self._look_at_router, _Looks(), http)))

    async def _start_all(self, http: httpx.AsyncClient) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._start_router(http))
            # Of all starts Ray's is the first to give up on a busy machine: it gets the cores first, the models then.
            await self._wait_for_ray()
            for server, _ in self._watched():
                group.create_task(self._start_server(server))

    def _watched(self) -> list[tuple[_Server, _Watch]]:
        """Every server that does not look after itself, with the looks at it."""
        plan = self._plan
        watched: list[tuple[_Server, _Watch]] = [(plan.zoo, plan.zoo_watch), (plan.leaf, plan.leaf_watch)]
        if plan.engine is not None:
            watched.append((plan.engine, EngineWatch(plan.engine, plan.settings.watch)))
        return watched

    async def _wait_for_ray(self) -> None:
        deadline = time.monotonic() + _RAY_HEAD_START_S
        while time.monotonic() < deadline:
            if self._plan.router.runs_ray:
                return
            await asyncio.sleep(_READY_POLL_S)

    async def _start_server(self, server: _Server) -> None:
        loaded = "model loaded" if isinstance(server, EngineServer) else "models loaded and warmed"
        async with self._step(f"{server.name}: {loaded}"):
            settings = getattr(self._plan.settings, server.name)
            for attempt in range(1, _START_ATTEMPTS + 1):
                server.start()
                try:
                    await asyncio.to_thread(server.wait_until_loaded, settings.start_timeout_s)
                    self._count_warmups(server.name)
                    return
                except ServerFailed as failure:
                    _give_up_or_tell(attempt, failure)
                    await asyncio.to_thread(server.stop, settings.stop_timeout_s)
                    await self._end_role(server.name)

    async def _start_router(self, http: httpx.AsyncClient) -> None:
        async with self._step("router: every required model ready"):
            for attempt in range(1, _START_ATTEMPTS + 1):
                self._plan.router.start()
                try:
                    await self._wait_until_ready(http)
                    return
                except ServerFailed as failure:
                    if self._plan.router.child.pid is not None:  # it runs; a model is what is missing
                        raise
                    _give_up_or_tell(attempt, failure)
                    await self._end_role("router")
                    remove_sockets(self._plan.folder)

    async def _wait_until_ready(self, http: httpx.AsyncClient) -> None:
        router = self._plan.router.child
        answer = "no answer yet"
        in_a_row = 0
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while time.monotonic() < deadline:
            if router.pid is None:
                raise ServerFailed(f"router: it ended while starting.\n{router.log_tail()}")
            with suppress(httpx.HTTPError):
                reply = await http.get(f"http://{self._plan.router_address}/health/ready", timeout=5)
                # HAProxy asks the idle replicas in turns: each of them has to have found everything ready.
                in_a_row = in_a_row + 1 if reply.status_code == 200 else 0
                if in_a_row == self._plan.settings.router.replicas:
                    return
                if reply.status_code == 200:
                    continue
                answer = reply.text[:1000]
            await asyncio.sleep(_READY_POLL_S)
        raise ServerFailed(f"router: not ready after {_READY_TIMEOUT_S:.0f} s: {answer}")

    async def _keep(self, server: str, look: Callable[[], Awaitable[None]]) -> None:
        """Look again and again. A look that fails is told and is tried again later: the platform outlives it."""
        settings = self._plan.settings.watch
        failed = 0
        while True:
            await asyncio.sleep(settings.interval_s + backoff_s(settings, failed))
            try:
                await look()
                failed = 0
            except Exception:
                failed += 1
                _log.exception("%s: a look at it failed, %d in a row", server, failed)

    async def _look_at(self, server: _Server, watch: _Watch, looks: _Looks, http: httpx.AsyncClient) -> None:
        remedies = await watch.look(http)
        for model in watch.failed:
            self._metrics.probe_failures.labels(server.name, model).inc()
        self._count_warmups(server.name)
        tell_new_faults(_log, server.name, watch.faults, looks.told)
        for remedy in remedies:
            await asyncio.sleep(backoff_s(self._plan.settings.watch, looks.remedies_in_a_row))
            await self._apply(remedy, server, watch, http)
        looks.remedies_in_a_row = looks.remedies_in_a_row + 1 if remedies else max(0, looks.remedies_in_a_row - 1)

    async def _apply(self, remedy: Remedy, server: _Server, watch: _Watch, http: httpx.AsyncClient) -> None:
        if isinstance(remedy, Reload) and isinstance(watch, Watch):
            _log.warning("%s: reloading %s: %s", server.name, remedy.model, remedy.cause)
            self._count_reload(server.name, remedy.model)
            if fault := await watch.reload(http, remedy.model):
                _log.error("%s: %s did not load again: %s", server.name, remedy.model, fault)
            else:
                _log.info("%s: %s works again", server.name, remedy.model)
        elif isinstance(remedy, Restart):
            _log.warning("%s: restarting: %s", server.name, remedy.cause)
            self._count_restart(server.name)
            await self._restart_server(server, watch)

    async def _restart_server(self, server: _Server, watch: _Watch) -> None:
        settings = getattr(self._plan.settings, server.name)
        await asyncio.to_thread(server.stop, settings.stop_timeout_s)
        await self._end_role(server.name)
        watch.forget()
        server.start()
        try:
            await asyncio.to_thread(server.wait_until_loaded, settings.start_timeout_s)
        except ServerFailed as failure:
            _log.error("%s", failure)
        else:
            _log.info("%s: runs again as process %s", server.name, server.pid)

    async def _look_at_router(self, looks: _Looks, http: httpx.AsyncClient) -> None:
        cause = self._broken_router()
        silence = "" if cause else await self._silence_of_router(http)
        if not cause and not silence:
            looks.well = time.monotonic()
            looks.remedies_in_a_row = max(0, looks.remedies_in_a_row - 1)
        if cause or time.monotonic() - looks.well > _RAY_HEALS_S:
            await asyncio.sleep(backoff_s(self._plan.settings.watch, looks.remedies_in_a_row))
            looks.remedies_in_a_row += 1
            await self._restart_router(cause or silence, http)
            looks.well = time.monotonic()

    def _broken_router(self) -> str:
        """What Ray cannot mend by itself."""
        router = self._plan.router
        if router.child.pid is None:
            return f"it ended by itself (exit code {router.child.exit_code})"
        missing = router.missing_parts(self._stock)
        return f"its {' and '.join(missing)} ended" if missing else ""

    async def _silence_of_router(self, http: httpx.AsyncClient) -> str:
        try:
            url = f"http://{self._plan.router_address}/health/live"
            reply = await http.get(url, timeout=self._plan.settings.watch.probe_timeout_s)
        except httpx.HTTPError as exc:
            return f"/health/live does not answer ({type(exc).__name__})"
        return "" if reply.status_code == 200 else f"/health/live answers {reply.status_code}"

    async def _restart_router(self, cause: str, http: httpx.AsyncClient) -> None:
        _log.warning("router: restarting: %s", cause)
        self._count_restart("router")
        await asyncio.to_thread(self._plan.router.child.stop, RAY_STOP_S)
        await self._end_role("router")
        remove_sockets(self._plan.folder)
        self._plan.router.start()
        try:
            await self._wait_until_ready(http)
        except ServerFailed as failure:
            _log.error("%s", failure)
        else:
            _log.info("router: runs again as process %s", self._plan.router.child.pid)

    async def _end_role(self, role: str) -> None:
        """End what a dead server left: its children, by the last records, and orphans that came to us since."""
        left = [record.process for record in self._records.read() if record.role.split()[0] == role]
        await asyncio.to_thread(end, left, LEFT_GRACE_S)

    def _begin_counts(self) -> None:
        for server, watch in self._watched():
            self._metrics.looks_after(server.name, watch.models)
        self._metrics.looks_after("router")
        for server in (self._plan.zoo, self._plan.leaf):
            self._metrics.loads(server.name, server.versions())

    def _count_warmups(self, server: str) -> None:
        """Those that failed since the last look: at the start, or when a model was loaded again."""
        for model, version in self._warmups[server].failures() if server in self._warmups else ():
            self._metrics.warmup_failures.labels(model, version).inc()

    def _count_restart(self, server: str) -> None:
        self._metrics.restarts.labels(server).inc()
        self._tell(restarts={**self.state.restarts, server: self.state.restarts.get(server, 0) + 1})

    def _count_reload(self, server: str, model: str) -> None:
        self._metrics.reloads.labels(server, model).inc()
        self._tell(reloads={**self.state.reloads, model: self.state.reloads.get(model, 0) + 1})

    async def _take_stock(self) -> None:
        while True:
            try:
                self._record()
            except OSError as exc:
                _log.error("the process records could not be written: %s", exc)
            if self._untold:
                self._tell()
            await asyncio.sleep(_STOCK_INTERVAL_S)

    def _record(self) -> None:
        self._stock = self._records.take_stock(os.getpid(), self._own())
        collect_zombies({server.last_pid for server in self._servers()})

    def _servers(self) -> list[_Server | Child]:
        plan = self._plan
        return [plan.zoo, plan.leaf, plan.router.child, *([plan.engine] if plan.engine is not None else [])]

    def _own(self) -> dict[int, str]:
        return {server.pid: server.name for server in self._servers() if server.pid is not None}

    async def _stop(self) -> None:
        """In order, and each step whatever became of those before it."""
        self._tell(phase="stopping")
        plan = self._plan
        _log.info("stopping: router, %sleaf, zoo", "engine, " if plan.engine is not None else "")
        steps: dict[str, Callable[[], object]] = {
            "the last records": self._record,
            "router": partial(plan.router.child.stop, router_stop_s(plan.settings)),
            "engine": self._stop_engine,
            "leaf": partial(plan.leaf.stop, plan.settings.leaf.stop_timeout_s),
            "zoo": partial(plan.zoo.stop, plan.settings.zoo.stop_timeout_s),
            "processes that are left": self._end_what_is_left,
            "shared memory": partial(remove_regions, self.state.shm_prefix),
            "sockets": partial(remove_sockets, plan.folder),
            "empty records": partial(self._records.write, []),
        }
        for name, step in steps.items():
            try:
                await asyncio.to_thread(step)
            except Exception:
                _log.exception("stopping: %s: it failed", name)
        _log.info("stopped")

    def _stop_engine(self) -> None:
        if self._plan.engine is not None:
            self._plan.engine.stop(self._plan.settings.engine.stop_timeout_s)

    def _end_what_is_left(self) -> None:
        left = end(descendants([os.getpid()], process_table()), LEFT_GRACE_S)
        for process in left:
            _log.warning("process %s was left and has been ended", process.pid)
        collect_zombies({server.last_pid for server in self._servers()})

    @asynccontextmanager
    async def _step(self, name: str) -> AsyncIterator[None]:
        started = time.monotonic()
        self._tell(steps=(*self.state.steps, Step(name=name)))
        yield
        took = Step(name=name, seconds=time.monotonic() - started)
        _log.info("%s (%.1f s)", name, took.seconds)
        self._tell(steps=tuple(took if step.name == name else step for step in self.state.steps))

    def _tell(self, phase: Phase | None = None, **update: object) -> None:
        if phase is not None:
            update["phase"] = phase
        self.state = self.state.model_copy(update=update)
        try:
            self._plan.folder.write_state(self.state)
            self._changed(self.state)
        except OSError as exc:  # a full disk, a closed pipe: no reason to stop serving
            if not self._untold:
                _log.error("the state could not be told: %s", exc)
            self._untold = True
        else:
            self._untold = False


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of a group of groups."""
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


def _give_up_or_tell(attempt: int, failure: ServerFailed) -> None:
    if attempt == _START_ATTEMPTS:
        raise failure
    _log.warning("start %d of %d failed: %s", attempt, _START_ATTEMPTS, failure)
