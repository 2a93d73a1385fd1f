"""The router alone, over Tritons that somebody else runs: a container's command, run here without a container."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from zooserve.processes.ports import free_ports

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[3]


@pytest.fixture
def lone_router(platform) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    zoo_host, _, zoo_port = platform.zoo_http.partition(":")
    leaf_host, _, leaf_port = platform.leaf_grpc.partition(":")
    port = free_ports(1)[0]
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
