"""An upstream that fails is left alone, which is told and counted, and is found again once it works."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from prometheus_client.parser import text_string_to_metric_families

from zooserve.processes.ports import reserved_ports
from zooserve.settings import Settings
from zooserve_router.app import create_app

pytestmark = pytest.mark.e2e

PATIENCE_S = 60.0
CATALOGUE = """
models:
  - name: theirs
    task: chat
    runs_on: upstream
    backend: {{kind: openai, server: other, url: "http://127.0.0.1:{port}/v1"}}
    limits: {{max_tokens: 400}}
    licence: none
    source: a test
"""
ENDED = {"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]}


@dataclass
class Upstream:
    """Somebody's server that speaks OpenAI's API: it works, or answers 500, or is not there."""

    port: int = field(default_factory=lambda: reserved_ports(1)[0])
    works: bool = True
    asked: int = 0
    """How many chats have come."""
    server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        upstream = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._say(200, "application/json", b'{"data": []}')

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                upstream.asked += 1
                if not upstream.works:
                    self._say(500, "application/json", b'{"error": {"message": "out of order"}}')
                    return
                self._say(200, "text/event-stream", f"data: {json.dumps(ENDED)}\n\ndata: [DONE]\n\n".encode())

            def _say(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None


@dataclass
class Router:
    """The router, whose one model is that upstream."""

    http: httpx.Client
    upstream: Upstream

    def chat(self, **fields: Any) -> httpx.Response:
        body = {"model": "theirs", "messages": [{"role": "user", "content": "Hello"}], **fields}
        return self.http.post("/v1/chat/completions", json=body)

    def told(self, sample: str, **labels: str) -> float:
        """One series, which is there whether or not anything has happened."""
        (value,) = [
            each.value
            for family in text_string_to_metric_families(self.http.get("/metrics").text)
            for each in family.samples
            if each.name == sample and each.labels == labels
        ]
        return float(value)

    @property
    def state(self) -> float:
        return self.told("zooserve_breaker_state", endpoint="theirs")

    def refused(self, reason: str) -> float:
        labels = {"model": "theirs", "class": "interactive", "reason": reason}
        return self.told("zooserve_admission_refused_total", **labels)


@pytest.fixture
def router(tmp_path: Path) -> Iterator[Router]:
    upstream = Upstream()
    upstream.start()
    catalogue = tmp_path / "zoo.yaml"
    catalogue.write_text(CATALOGUE.format(port=upstream.port), encoding="utf-8")
    with (
        _served(Settings(catalogue=catalogue, state_dir=tmp_path / "state")) as url,
        httpx.Client(base_url=url) as http,
    ):
        router = Router(http, upstream)
        eventually(lambda: router.chat().status_code == 200)
        upstream.asked = 0
        yield router
    upstream.stop()


@contextmanager
def _served(settings: Settings) -> Iterator[str]:
    (port,) = reserved_ports(1)
    server = uvicorn.Server(uvicorn.Config(create_app(settings), host="127.0.0.1", port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, name="router")
    thread.start()
    try:
        while not server.started:
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_everything_is_there_at_zero_before_anything_fails(router: Router) -> None:
    assert router.state == 0
    assert [router.refused(reason) for reason in ("queue", "deadline", "breaker")] == [0, 0, 0]
    for outcome in ("ok", "failed", "denied"):
        assert router.told("zooserve_retries_total", endpoint="theirs", outcome=outcome) == 0
    assert router.told("zooserve_breaker_opened_total", endpoint="theirs") == 0
    assert router.told("zooserve_breaker_state", endpoint="zoo") == 0


def test_an_upstream_that_answers_500_is_left_alone_and_found_again(router: Router) -> None:
    router.upstream.works = False
    answers = [router.chat() for _ in range(5)]
    assert [each.status_code for each in answers] == [502] * 5
    assert router.state == 2
    refused = router.chat()
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "breaker_open")
    assert int(refused.headers["retry-after"]) >= 1
    assert int(refused.headers["retry-after-ms"]) > 0
    assert router.upstream.asked == 5, "what is refused is not sent"
    assert router.refused("breaker") == 1
    assert router.told("zooserve_breaker_opened_total", endpoint="theirs") == 1
    assert router.http.get("/health/ready").status_code == 200, "its list of models still answers"

    router.upstream.works = True
    eventually(lambda: router.chat().status_code == 200)
    assert router.state == 0
    assert router.upstream.asked == 6


def test_an_upstream_that_is_gone_is_found_gone_without_a_callers_help_and_found_again(router: Router) -> None:
    router.upstream.stop()
    lost = router.chat()
    assert (lost.status_code, lost.json()["error"]["code"]) == (503, "backend_unavailable")
    eventually(lambda: router.state == 2)  # the probes of its readiness fail as well
    refused = router.chat()
    assert refused.status_code == 503
    assert "not ready" in refused.json()["error"]["message"]
    assert router.refused("not_ready") >= 1
    tries = sum(
        router.told("zooserve_retries_total", endpoint="theirs", outcome=outcome) for outcome in ("failed", "denied")
    )
    assert tries >= 1

    router.upstream.start()
    eventually(lambda: router.chat().status_code == 200)
    assert router.state == 0


def test_refusals_of_one_caller_leave_the_others_alone(router: Router) -> None:
    for _ in range(20):
        assert router.chat(temperature=9).status_code == 400
    assert router.state == 0
    assert router.chat().status_code == 200
