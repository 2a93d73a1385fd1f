"""The access log of a router that runs alone, as a container's output."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from zooserve.processes.ports import reserved_ports

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[3]


@pytest.fixture
def printing(tmp_path: Path) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """A router without its Tritons, with two replicas that print their access log into a pipe."""
    port, *tritons = map(str, reserved_ports(3))
    variables = {
        "ZOOSERVE_STATE_DIR": str(tmp_path / "state"),
        "ZOOSERVE_PORT": port,
        "ZOOSERVE_ZOO__HTTP_PORT": tritons[0],
        "ZOOSERVE_LEAF__GRPC_PORT": tritons[1],
        "ZOOSERVE_ACCESS_LOG__TO": "stdout",
        "ZOOSERVE_ROUTER__REPLICAS": "2",
    }
    command = [sys.executable, "-m", "zooserve_cli", "route"]
    environment = {**os.environ, **variables}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield f"http://127.0.0.1:{port}", process
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)


def wait_until_live(url: str, process: "subprocess.Popen[bytes]") -> None:
    while process.poll() is None:
        try:
            if httpx.get(f"{url}/health/live", timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.25)  # between two looks; how long it takes is not what this tests
    pytest.fail("the router ended while starting")


def test_what_a_router_that_runs_alone_prints_are_the_lines_of_its_replicas(printing) -> None:
    url, process = printing
    wait_until_live(url, process)
    ids = {httpx.post(f"{url}/v1/nothing/{number}").headers["x-request-id"] for number in range(20)}
    lines: dict[str, dict] = {}
    while ids - set(lines):
        text = process.stdout.readline()
        assert text, "the router's output ended"
        if text.startswith(b"{"):
            line = json.loads(text)
            lines[line["request_id"]] = line
    assert {(line["route"], line["status"], line["error"]) for line in lines.values()} == {
        ("unknown", 404, "route_not_found")
    }
