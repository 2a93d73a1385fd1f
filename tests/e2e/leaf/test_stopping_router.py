"""A router that is told to stop: what is not written by the end of its drain is ended, and its caller told so."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from zooserve.processes.ports import reserved_ports

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[3]


@pytest.fixture
def router(leaf: Any) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A router over the leaf alone, which drains for half a second."""
    port, no_zoo = reserved_ports(2)
    host, _, grpc_port = leaf.server.addresses.grpc.partition(":")
    with tempfile.TemporaryDirectory(prefix="zooserve-stop-") as state:
        variables = {
            "ZOOSERVE_STATE_DIR": state,
            "ZOOSERVE_PORT": str(port),
            "ZOOSERVE_MODELS": "chat",
            "ZOOSERVE_ZOO__HTTP_PORT": str(no_zoo),
            "ZOOSERVE_LEAF__HOST": host,
            "ZOOSERVE_LEAF__GRPC_PORT": grpc_port,
            "ZOOSERVE_ROUTER__DRAIN_S": "0.5",
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
            if httpx.get(f"{url}/health/ready", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.25)  # between two looks; how long it takes is not what this tests
    pytest.fail("the router ended while starting")


async def test_a_stream_that_outlasts_the_drain_ends_with_an_error_event_and_frees_the_leaf(leaf, router) -> None:
    url, process = router
    wait_until_ready(url, process)
    messages = [{"role": "user", "content": "Tell me a very long story about the sea."}]
    body = {"model": "chat", "messages": messages, "max_tokens": 512, "stream": True}
    async with (
        httpx.AsyncClient(timeout=60) as http,
        http.stream("POST", f"{url}/v1/chat/completions", json=body) as answer,
    ):
        data = (line.removeprefix("data: ") async for line in answer.aiter_lines() if line)
        await anext(data)
        process.send_signal(signal.SIGTERM)
        *_, error, done = [each async for each in data]
    assert json.loads(error)["error"]["code"] == "router_stopping"
    assert done == "[DONE]"
    await leaf.until(lambda load: load.active_requests == load.live_kv_tokens == 0)
    assert process.wait(60) == 0
