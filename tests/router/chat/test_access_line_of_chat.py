"""What the access log says of chats: their tokens, and where their time went."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from zooserve.errors import BackendFailed
from zooserve.settings import Settings
from zooserve_observability.access_log import AccessLog
from zooserve_router.chat.generation import Piece, Timings, Usage
from zooserve_router.middleware import Edge


@pytest.fixture
def log(edge, tmp_path: Path) -> AccessLog:
    return AccessLog.by(Settings(state_dir=tmp_path), edge.metrics.logs)


@pytest.fixture
async def http(edge, log) -> AsyncIterator[httpx.AsyncClient]:
    app = Starlette(routes=edge.app.routes)
    app.state.services = edge.app.state.services
    app.add_middleware(Edge, metrics=edge.metrics, max_body_bytes=10_000, max_deadline_s=60, access_log=log)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://router") as client:
        yield client


def line_in(log: AccessLog, folder: Path) -> dict:
    log._write_what_waits()
    (line,) = (folder / "logs" / "access.jsonl").read_text().splitlines()
    return json.loads(line)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_tells_its_tokens_its_phases_and_its_first_token(edge, http, log, tmp_path, stream):
    edge.leaf.script = [Piece("Hello"), Piece("", "stop", usage=Usage(7, 2, 3), timings=Timings(0.5, 0.25, 2.0))]
    body = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], "stream": stream}
    answer = await http.post("/v1/chat/completions", json=body)
    line = line_in(log, tmp_path)
    assert (line["status"], line["outcome"], line["model"], line["route"]) == (
        200,
        "ok",
        "chat",
        "/v1/chat/completions",
    )
    assert (line["input_tokens"], line["output_tokens"], line["cached_tokens"]) == (7, 2, 3)
    assert {"parse", "admission"} < set(line["phases_ms"])
    assert {name: line["phases_ms"][name] for name in ("queue", "prefill", "decode")} == {
        "queue": 500,
        "prefill": 250,
        "decode": 2000,
    }
    assert 0 < line["time_to_first_token_ms"] <= line["duration_ms"]
    assert "first_token" not in line["phases_ms"]
    assert line["bytes_out"] == len(answer.content)


async def test_a_chat_that_fails_after_it_began_has_the_status_it_sent_and_the_outcome_it_had(
    edge, http, log, tmp_path
):
    edge.leaf.script = [Piece("Hello"), BackendFailed("the leaf said: secret words")]
    body = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    await http.post("/v1/chat/completions", json=body)
    line = line_in(log, tmp_path)
    assert (line["status"], line["outcome"], line["error"]) == (200, "BackendFailed", "backend_failed")
    assert "secret" not in json.dumps(line)
