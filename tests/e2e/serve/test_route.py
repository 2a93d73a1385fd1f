"""The router alone, over Tritons that somebody else runs: a container's command, run here without a container."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from zooserve.processes.identity import Process, descendants, is_alive, process_table, send
from zooserve.processes.ports import reserved_ports
from zooserve.processes.records import ProcessRecords
from zooserve.processes.state import StateFolder

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[3]


@pytest.fixture
def lone_router(platform) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    zoo_host, _, zoo_port = platform.zoo_http.partition(":")
    leaf_host, _, leaf_port = platform.leaf_grpc.partition(":")
    port = reserved_ports(1)[0]
    with tempfile.TemporaryDirectory(prefix="zooserve-route-") as state:
        variables = {
            "ZOOSERVE_STATE_DIR": state,
            "ZOOSERVE_PORT": str(port),
            "ZOOSERVE_ZOO__HOST": zoo_host,
            "ZOOSERVE_ZOO__HTTP_PORT": zoo_port,
            "ZOOSERVE_LEAF__HOST": leaf_host,
            "ZOOSERVE_LEAF__GRPC_PORT": leaf_port,
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "zooserve_cli", "route"],
            cwd=ROOT,
            env={**os.environ, **variables},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield f"http://127.0.0.1:{port}", process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def wait_until_ready(url: str, process: "subprocess.Popen[bytes]") -> None:
    while process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/health/ready", timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.25)  # between two looks; how long it takes is not what this tests
    pytest.fail("the router ended while starting")


def test_the_router_alone_answers_from_tritons_of_another_platform(lone_router) -> None:
    url, process = lone_router
    wait_until_ready(url, process)
    request = urllib.request.Request(
        f"{url}/v1/embeddings",
        json.dumps({"model": "embed", "input": "hello"}).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert len(json.load(answer)["data"][0]["embedding"]) == 384
        assert answer.headers["x-zooserve-version"] == "1"
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


class Forlorn:
    """A router whose Tritons are not there: enough to see what becomes of its processes."""

    def __init__(self, state: Path) -> None:
        self.folder = StateFolder(state)
        port, *tritons = map(str, reserved_ports(3))
        self.url = f"http://127.0.0.1:{port}"
        self.process: subprocess.Popen[str] | None = None
        self._variables = {
            "ZOOSERVE_STATE_DIR": str(state),
            "ZOOSERVE_PORT": port,
            "ZOOSERVE_ZOO__HTTP_PORT": tritons[0],
            "ZOOSERVE_LEAF__GRPC_PORT": tritons[1],
        }

    def zooserve(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start the command over the same state folder."""
        return subprocess.Popen(
            [sys.executable, "-m", "zooserve_cli", *arguments],
            cwd=ROOT,
            env={**os.environ, **self._variables},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def lives(self) -> bool:
        """Whether the router answers."""
        try:
            with urllib.request.urlopen(f"{self.url}/health/live", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@pytest.fixture
def forlorn() -> Iterator[tuple[Forlorn, set[Process]]]:
    """It, running, and every process of it."""
    with tempfile.TemporaryDirectory(prefix="zooserve-route-") as state:
        router = Forlorn(Path(state))
        process = router.process = router.zooserve("route")
        # A router that fills a pipe that nobody reads would wait for ever.
        reader = threading.Thread(target=process.communicate)
        reader.start()
        try:
            while not router.lives():
                assert process.poll() is None
                time.sleep(0.25)  # between two looks
            own = {
                Process(record.pid, record.start_time) for record in ProcessRecords(router.folder.records_file).read()
            }
            yield router, own | descendants([process.pid], process_table())
        finally:
            router.zooserve("down").communicate()
            process.kill()
            reader.join()


def assert_nothing_left(router: Forlorn, processes: set[Process]) -> None:
    assert [process for process in processes if is_alive(process)] == []
    assert not router.folder.sockets.exists()
    assert ProcessRecords(router.folder.records_file).read() == []


def test_a_second_router_is_refused_and_down_stops_the_first(forlorn: tuple[Forlorn, set[Process]]) -> None:
    router, processes = forlorn
    second = router.zooserve("route")
    _, refusal = second.communicate(timeout=60)
    assert second.returncode == 1
    assert "already runs" in refusal
    assert router.folder.sockets.exists()
    assert router.lives()
    down = router.zooserve("down")
    _, errors = down.communicate(timeout=120)
    assert down.returncode == 0, errors
    assert router.process is not None
    assert router.process.wait(10) == 0
    assert_nothing_left(router, processes)


def test_down_reaps_what_a_killed_route_left(forlorn: tuple[Forlorn, set[Process]]) -> None:
    router, processes = forlorn
    roles = {record.role: record.process for record in ProcessRecords(router.folder.records_file).read()}
    for role in ("supervisor", "router"):
        assert send(roles[role], signal.SIGKILL)
    down = router.zooserve("down")
    _, errors = down.communicate(timeout=120)
    assert down.returncode == 0, errors
    assert_nothing_left(router, processes)


def test_a_router_that_lost_a_part_of_ray_ends_with_an_error(forlorn: tuple[Forlorn, set[Process]]) -> None:
    """A container engine starts what ends; Ray's replicas would go on for minutes, and take no new ones in."""
    router, processes = forlorn
    assert router.process is not None
    records = ProcessRecords(router.folder.records_file)
    (raylet,) = (each.process for each in records.read() if each.command.partition(" ")[0].endswith("/raylet"))
    assert send(raylet, signal.SIGKILL)
    assert router.process.wait(90) not in (0, -signal.SIGKILL)
    assert_nothing_left(router, processes)


def test_a_router_that_is_stopped_while_it_deploys_ends_in_order(tmp_path: Path) -> None:
    router = Forlorn(tmp_path)
    process = router.zooserve("route")
    reader = threading.Thread(target=process.communicate)
    reader.start()
    try:
        while not (router.folder.run / "ray").exists():  # Ray runs, Serve and the app do not yet
            assert process.poll() is None
            time.sleep(0.05)  # between two looks
        processes = descendants([process.pid], process_table())
        process.send_signal(signal.SIGTERM)
        assert process.wait(90) == 0
    finally:
        process.kill()
        reader.join()
    assert_nothing_left(router, processes)
