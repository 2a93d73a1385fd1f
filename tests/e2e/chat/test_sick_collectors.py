"""Whatever becomes of its collector, a router that traces everything answers as it does without one."""

import asyncio
import socket
import struct
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from zooserve.processes.ports import reserved_ports
from zooserve.settings import TracingSettings

pytestmark = pytest.mark.e2e

ASKED = {
    "model": "chat_json",
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "temperature": 0,
    "max_tokens": 12,
}
CHATS = 12


class Ill(BaseHTTPRequestHandler):
    """A collector that takes no spans: it answers 500."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(500)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Quiet."""


class Resetting(Ill):
    """One that resets the connection."""

    def do_POST(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        for each in (self.rfile, self.wfile, self.connection):  # closed when the last of them is
            each.close()


class Hanging(Ill):
    """One that never answers."""

    def do_POST(self) -> None:
        self.rfile.read()  # until whoever asks has gone


ILLNESSES = {"500": Ill, "resets": Resetting, "hangs": Hanging, "absent": None}


async def answers(url: str) -> list[str]:
    """The same chat over and over, streamed every other time."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        return [await answer(http, stream=number % 2 == 1) for number in range(CHATS)]


async def answer(http: httpx.AsyncClient, *, stream: bool) -> str:
    reply = await http.post("/v1/chat/completions", json={**ASKED, "stream": stream})
    assert reply.status_code == 200
    if not stream:
        return str(reply.json()["choices"][0]["message"]["content"])
    lines = [line for line in reply.text.splitlines() if line.startswith("data: {")]
    return "".join(
        httpx.Response(200, text=line[6:]).json()["choices"][0]["delta"].get("content", "") for line in lines
    )


async def dropped(url: str, reason: str) -> float:
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        page = (await http.get("/metrics")).text
    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    labels = {"exporter": "router", "reason": reason}
    return sum(each.value for each in samples if each.name == "zooserve_spans_dropped_total" and each.labels == labels)


@pytest.fixture(params=ILLNESSES)
def collector(request: pytest.FixtureRequest, serve: Callable[[type[BaseHTTPRequestHandler]], str]) -> str:
    """Its address."""
    illness = ILLNESSES[request.param]
    return f"http://127.0.0.1:{reserved_ports(1)[0]}" if illness is None else serve(illness)


async def test_a_sick_collector_changes_no_answer_and_its_spans_are_counted_as_lost(
    upstream_router: Any, routed: Callable[..., Any], collector: str, caplog: pytest.LogCaptureFixture
) -> None:
    well = await answers(upstream_router.url)
    with routed(tracing=TracingSettings(sampling="head", ratio=1, endpoint=collector)) as router:
        assert await answers(router.url) == well
        # A hanging one is given up after some seconds; the test's own timeout bounds it.
        while not await dropped(router.url, "failed"):  # noqa: ASYNC110 - a page has no event
            await asyncio.sleep(0.05)
        assert await answers(router.url) == well
    told = [record for record in caplog.records if record.name.endswith("span_export")]
    assert [record.message.split(",")[0] for record in told if "this process ended" not in record.message] == [
        "spans were not taken by whoever collects them"
    ]
