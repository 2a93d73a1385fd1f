"""What the supervisor does when its own work fails: it goes on serving, and it still stops everything."""

import asyncio
import logging
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from zooserve.engine.watch import EngineWatch
from zooserve.errors import PortTaken
from zooserve.processes.state import StateFolder, unplanned
from zooserve.settings import RouterSettings, Settings, TraceLogSettings, WatchSettings
from zooserve_cli.bounds import stop_s
from zooserve_cli.supervisor import Supervisor, _Looks
from zooserve_cli.trace_keeping import traces_kept
from zooserve_cli.up import _ended_by_signals
from zooserve_observability.supervision import SupervisorMetrics
from zooserve_observability.trace_metrics import TraceMetrics


class Stoppable:
    """The part of a server that stopping touches."""

    pid = last_pid = None

    def __init__(self, name: str, stopped: list[str], failing: bool = False) -> None:
        self.name = name
        self._stopped = stopped
        self._failing = failing

    def stop(self, timeout_s: float) -> None:
        self._stopped.append(self.name)
        if self._failing:
            raise OSError("no such thing")


class Engine(Stoppable):
    """A server whose process has ended; it runs again once it is started."""

    pid: int | None = None
    exit_code = -9
    address = "engine"
    orders = SimpleNamespace(key="no secret")

    def start(self) -> None:
        self.pid = os.getpid()

    def wait_until_loaded(self, timeout_s: float) -> None:
        assert self.pid is not None


@pytest.fixture
def stopped() -> list[str]:
    return []


@pytest.fixture
def supervisor(tmp_path: Path, stopped: list[str]) -> Supervisor:
    folder = StateFolder(tmp_path / "state")
    folder.create()
    plan: Any = SimpleNamespace(
        settings=Settings(watch=WatchSettings(interval_s=0.001, backoff_s=0.001)),
        folder=folder,
        router=SimpleNamespace(child=Stoppable("router", stopped, failing=True)),
        engine=Stoppable("engine", stopped),
        leaf=Stoppable("leaf", stopped),
        zoo=Stoppable("zoo", stopped),
    )
    state = unplanned("ready").model_copy(update={"shm_prefix": "zooserve-nobody-"})
    nothing: Any = None
    return Supervisor(plan, nothing, state, nothing, lambda state: None)


async def test_a_look_that_fails_is_told_and_looked_again(
    supervisor: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    looked = asyncio.Event()
    looks: list[int] = []

    async def look() -> None:
        looks.append(1)
        if len(looks) < 3:
            raise OSError("no room for a process")
        looked.set()

    task = asyncio.create_task(supervisor._keep("zoo", look))
    await asyncio.wait({task, asyncio.create_task(looked.wait())}, return_when=asyncio.FIRST_COMPLETED)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert caplog.text.count("no room for a process") >= 2


async def test_an_engine_that_has_ended_is_started_again_and_counted(
    supervisor: Supervisor, stopped: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    supervisor._metrics = SupervisorMetrics(CollectorRegistry())
    engine: Any = Engine("engine", stopped)
    healthy = httpx.MockTransport(lambda request: httpx.Response(200))
    async with httpx.AsyncClient(transport=healthy) as http:
        for _ in range(2):
            await supervisor._look_at(engine, EngineWatch(engine, WatchSettings()), _Looks(), http)
    assert stopped == ["engine"]
    assert supervisor.state.restarts == {"engine": 1}
    assert "engine: restarting: it ended by itself (exit code -9)" in caplog.text


async def test_everything_is_stopped_in_order_though_nothing_can_be_written(
    supervisor: Supervisor, stopped: list[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(supervisor._plan.folder.root)
    monkeypatch.setattr(Supervisor, "_end_what_is_left", lambda self: stopped.append("what is left"))
    await supervisor._stop()
    assert stopped == ["router", "engine", "leaf", "zoo", "what is left"]
    assert "stopping: router: it failed" in caplog.text
    assert supervisor.state.phase == "stopping"


async def test_a_state_that_could_not_be_written_is_written_with_the_next_stock(supervisor: Supervisor) -> None:
    folder = supervisor._plan.folder
    folder.run.rename(folder.root / "away")
    supervisor._tell(phase="ready")
    (folder.root / "away").rename(folder.run)
    assert folder.read_state() is None
    stock = asyncio.create_task(supervisor._take_stock())
    await asyncio.sleep(0)
    stock.cancel()
    state = folder.read_state()
    assert state is not None
    assert state.phase == "ready"


async def test_a_port_taken_since_it_was_chosen_for_the_trace_log_is_told_by_its_setting(tmp_path: Path) -> None:
    taken = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    settings = Settings(trace_log=TraceLogSettings(port=port))
    with pytest.raises(PortTaken, match=f"{port} of 127.0.0.1 .*ZOOSERVE_TRACE_LOG__PORT"):
        async with traces_kept(settings, tmp_path / "traces.db", TraceMetrics(CollectorRegistry())):
            pytest.fail("it cannot have listened")
    taken.close()


def test_the_bound_of_stopping_grows_with_the_settings() -> None:
    patient = Settings(router=RouterSettings(drain_s=600))
    assert stop_s(patient) - stop_s(Settings(router=RouterSettings(drain_s=0))) == 600
    servers = (patient.zoo, patient.leaf, patient.engine)
    assert stop_s(patient) > 600 + sum(server.stop_timeout_s for server in servers)


@pytest.fixture(params=[signal.SIGTERM, signal.SIGHUP])
def number(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    """A signal at its default, also where the tests run under nohup, which has SIGHUP ignored."""
    before = signal.signal(request.param, signal.SIG_DFL)
    yield request.param
    signal.signal(request.param, before)


def test_a_signal_during_set_up_runs_what_cleans_up(number: signal.Signals) -> None:
    cleaned = []
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as told, _ended_by_signals():  # noqa: PT012
        try:
            os.kill(os.getpid(), number)
            signal.sigtimedwait([], 5)
        finally:
            cleaned.append(number)
    assert told.value.code == 128 + number
    assert cleaned == [number]
    assert signal.getsignal(number) == before


def test_a_hang_up_that_nohup_has_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with _ended_by_signals():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.fixture(autouse=True)
def _told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="zooserve")
