"""However a platform ends, nothing of it is left: no process, no shared memory, no socket folder."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from zooserve.processes.identity import Process, descendants, is_alive, process_table, send
from zooserve.processes.records import ProcessRecords
from zooserve.processes.shared_memory import regions
from zooserve.processes.state import StateFolder

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

PATIENCE_S = 300


def eventually(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def phase(folder: StateFolder) -> str:
    state = folder.read_state()
    return state.phase if state else "none"


def everything_of(platform: Any) -> set[Process]:
    """The supervisor and all below it, read from the kernel and not from the platform's own records."""
    supervisor = platform.state.pid
    own = Process(supervisor, platform.state.start_time)
    return {own} | descendants([supervisor], process_table())


def assert_nothing_left(platform: Any, processes: set[Process]) -> None:
    left = [process for process in processes if is_alive(process)]
    assert left == []
    assert regions(platform.state.shm_prefix) == []
    assert not platform.folder.sockets.exists()
    assert ProcessRecords(platform.folder.records_file).read() == []


@pytest.fixture
def in_foreground(platform_factory: Callable[..., Any]) -> Iterator[Callable[[], Any]]:
    """Starts `zooserve up` as a terminal would: in a process group of its own, its output in a pipe."""
    started: list[subprocess.Popen[str]] = []

    def start() -> Any:
        platform = platform_factory()
        process = subprocess.Popen(
            platform.command("up"),
            env=platform.variables(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            cwd=platform.root,
        )
        started.append(process)
        return platform, process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_a_ready_platform_stops_everything(
    in_foreground: Callable[[], Any], number: signal.Signals
) -> None:
    platform, process = in_foreground()
    eventually(lambda: phase(platform.folder) == "ready" or process.poll() is not None, "it never became ready")
    processes = everything_of(platform)
    assert len(processes) > 20, platform.logs()
    # As a terminal's Ctrl-C does: to the whole foreground group.
    os.killpg(process.pid, number)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert "First embedding" in output
    assert "First chat" in output
    assert "Stopped." in output
    assert phase(platform.folder) == "stopped"
    assert_nothing_left(platform, processes)


def test_a_stream_in_flight_is_finished_before_the_router_stops(platform_factory: Callable[..., Any]) -> None:
    platform = platform_factory(ZOOSERVE_ROUTER__DRAIN_S="60")
    platform.up()
    essay = [{"role": "user", "content": "Write a long essay about the history of Rome."}]
    body = {"model": "chat", "messages": essay, "max_tokens": 200, "temperature": 0, "stream": True}
    with httpx.stream("POST", f"{platform.url}/v1/chat/completions", json=body, timeout=60) as answer:
        lines = answer.iter_lines()
        next(lines)
        assert send(Process(platform.state.pid, platform.state.start_time), signal.SIGTERM)
        eventually(lambda: phase(platform.folder) == "stopping", "it never began to stop")
        rest = [line for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    assert len(rest) > 100
    eventually(lambda: phase(platform.folder) == "stopped", "it never stopped")


def test_a_signal_during_the_start_stops_everything(in_foreground: Callable[[], Any]) -> None:
    platform, process = in_foreground()

    def half_started() -> bool:
        return phase(platform.folder) == "starting" and len(everything_of(platform)) > 8

    eventually(lambda: half_started() or process.poll() is not None, "it never started")
    processes = everything_of(platform)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert_nothing_left(platform, processes)


def test_after_kill_9_down_reaps_what_is_left(platform_factory: Callable[..., Any]) -> None:
    platform = platform_factory()
    platform.up()
    processes = everything_of(platform)
    roles = {record.role: record.process for record in ProcessRecords(platform.folder.records_file).read()}
    # The supervisor first, and with it the only one that could stop Ray in good order.
    for role in ("supervisor", "router"):
        assert send(roles[role], signal.SIGKILL)
    done = platform.down()
    assert done.returncode == 0, done.stderr
    assert "Cleared away" in done.stdout
    assert_nothing_left(platform, processes)
    assert "Nothing runs" in platform.down().stdout


def test_after_kill_9_the_next_up_reaps_and_starts(platform_factory: Callable[..., Any]) -> None:
    platform = platform_factory()
    platform.up()
    processes = everything_of(platform)
    send(Process(platform.state.pid, platform.state.start_time), signal.SIGKILL)
    platform.up()
    assert [process for process in processes if is_alive(process)] == []
    assert platform.zooserve("status").returncode == 0


def test_a_stranger_with_a_recorded_pid_is_left_alone(platform_factory: Callable[..., Any]) -> None:
    platform = platform_factory()
    platform.folder.create()
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        records = ProcessRecords(platform.folder.records_file)
        records.take_stock(stranger.pid, {})
        file = platform.folder.records_file
        start_time = records.read()[0].start_time
        file.write_text(file.read_text().replace(str(start_time), str(start_time - 1)))
        assert platform.down().returncode == 0
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.communicate()
