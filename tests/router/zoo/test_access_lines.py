"""What the real router's access log says of every way in which a request can end, and what it never says."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from zooserve.errors import BackendFailed, FailedStage
from zooserve.settings import AccessLogSettings, RouterSettings, Settings
from zooserve_observability.access_log import FIELDS, AccessLog
from zooserve_router.app import bare_app
from zooserve_router.keys import KeyIds

SALT = "0123456789abcdef"
SECRET = "s3cret-words"


@dataclass(frozen=True)
class Logged:
    """The router with its access log."""

    http: httpx.AsyncClient
    log: AccessLog
    file: Path

    def lines(self) -> list[dict]:
        """What was logged so far."""
        self.log._write_what_waits()
        return [json.loads(line) for line in self.file.read_bytes().splitlines()] if self.file.exists() else []

    def line(self) -> dict:
        """The only one."""
        (line,) = self.lines()
        return line


@pytest.fixture
def bounds() -> RouterSettings:
    return RouterSettings(max_body_bytes=1000)


@pytest.fixture
def wanted() -> AccessLogSettings:
    return AccessLogSettings()


@pytest.fixture
async def logged(router, bounds, wanted, tmp_path) -> AsyncIterator[Logged]:
    settings = Settings(state_dir=tmp_path, access_log=wanted)
    log = AccessLog.by(settings, router.metrics.logs)
    assert log is not None
    app = bare_app(bounds, router.metrics, access_log=log, key_ids=KeyIds(SALT))
    app.state.services = router.services
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://router") as http:
        yield Logged(http, log, settings.access_log_file)


async def test_an_answer_is_one_line_with_its_model_tokens_phases_and_bytes(logged):
    headers = {"authorization": f"Bearer {SECRET}", "x-request-id": "mine-1"}
    answer = await logged.http.post("/v1/embeddings", json={"model": "embed", "input": "w5 w6"}, headers=headers)
    line = logged.line()
    assert line["duration_ms"] >= line["phases_ms"]["zoo"] > 0
    assert set(line["phases_ms"]) >= {"parse", "zoo"}
    assert line.pop("time").endswith("Z")
    assert line.pop("pid") > 0
    del line["duration_ms"], line["phases_ms"]
    assert line == {
        "request_id": "mine-1",
        "key_id": KeyIds(SALT).of({b"x-api-key": SECRET.encode()}),
        "method": "POST",
        "route": "/v1/embeddings",
        "status": 200,
        "outcome": "ok",
        "model": "embed",
        "version": "1",
        "class": "interactive",
        "input_tokens": 4,
        "bytes_in": len(answer.request.content),
        "bytes_out": len(answer.content),
    }


async def test_a_model_that_nobody_serves_is_unknown_and_not_named(logged):
    await logged.http.post("/v1/embeddings", json={"model": SECRET, "input": "w5"})
    line = logged.line()
    assert (line["status"], line["outcome"], line["error"]) == (404, "ModelNotFound", "model_not_found")
    assert line["model"] == "unknown"
    assert "version" not in line
    assert SECRET not in json.dumps(line)


async def test_a_refusal_is_named_by_its_code_and_not_by_its_message(logged):
    await logged.http.post("/v1/embeddings", json={"model": "embed", "input": {SECRET: SECRET}})
    line = logged.line()
    assert (line["status"], line["outcome"], line["error"]) == (400, "BadInput", "invalid_type")
    assert SECRET not in json.dumps(line)


async def test_a_failure_names_the_stage(logged, router):
    router.zoo.fault = BackendFailed(f"it failed on {SECRET}", failed=FailedStage("embed_encoder", "1", "exception"))
    await logged.http.post("/v1/embeddings", json={"model": "embed", "input": "w5"})
    line = logged.line()
    assert (line["status"], line["outcome"], line["error"]) == (502, "BackendFailed", "backend_failed")
    assert (line["model"], line["failed_stage"]) == ("embed", "embed_encoder/1")


async def test_what_nobody_foresaw_is_logged_too(logged, router, monkeypatch):
    async def broken(*_: object) -> None:
        raise RuntimeError(SECRET)

    monkeypatch.setattr(router.services.embedder, "embed", broken)
    await logged.http.post("/v1/embeddings", json={"model": "embed", "input": "w5"})
    line = logged.line()
    assert (line["status"], line["outcome"], line["error"]) == (500, "InternalError", "internal_error")
    assert SECRET not in json.dumps(line)


async def test_a_cancelled_request_has_a_line_without_a_status(logged, router):
    router.zoo.open.clear()
    asking = asyncio.create_task(logged.http.post("/v1/embeddings", json={"model": "embed", "input": "w5"}))
    while not router.zoo.busy:  # noqa: ASYNC110 (the zoo has no event for it)
        await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    line = logged.line()
    assert (line["outcome"], line["model"], line["bytes_out"]) == ("cancelled", "embed", 0)
    assert "status" not in line


@pytest.mark.parametrize(
    ("method", "path", "content", "status", "route", "outcome"),
    [
        ("POST", f"/{SECRET}", b"{}", 404, "unknown", "RouteNotFound"),
        ("GET", "/v1/embeddings", b"", 405, "/v1/embeddings", "MethodNotAllowed"),
        ("POST", "/v1/embeddings", b"x" * 1001, 413, "/v1/embeddings", "BodyTooLarge"),
        ("POST", "/v1/rerank", b"x" * 1001, 413, "/v1/rerank", "BodyTooLarge"),
        ("POST", f"/{SECRET}", b"x" * 1001, 413, "unknown", "BodyTooLarge"),
        ("GET", f"/v1/models/{SECRET}", b"", 404, "/v1/models/{name:path}", "ModelNotFound"),
        ("POST", "/v1/embeddings", b'{"model": ', 400, "/v1/embeddings", "BadInput"),
        ("BREW", "/v1/embeddings", b"", 405, "/v1/embeddings", "MethodNotAllowed"),
    ],
)
async def test_every_refusal_has_a_line_with_a_bounded_route(logged, method, path, content, status, route, outcome):
    answer = await logged.http.request(method, path, content=content)
    line = logged.line()
    assert (answer.status_code, line["status"], line["route"], line["outcome"]) == (status, status, route, outcome)
    assert line["method"] == ("other" if method == "BREW" else method)
    assert line["bytes_in"] <= 1001
    assert SECRET not in json.dumps(line)


async def test_a_header_that_makes_no_sense_is_refused_in_a_line_that_knows_the_route(logged):
    await logged.http.post("/v1/embeddings", headers={"x-zooserve-class": SECRET})
    line = logged.line()
    assert (line["route"], line["outcome"], line["status"]) == ("/v1/embeddings", "BadInput", 400)
    assert SECRET not in json.dumps(line)


async def test_lists_have_a_line_without_a_model(logged):
    await logged.http.get("/v1/models")
    line = logged.line()
    assert (line["route"], line["outcome"]) == ("/v1/models", "ok")
    assert not {"model", "version", "class", "input_tokens"} & set(line)


WATCHED = ["/health/live", "/health/ready", "/metrics", "/v2/health/live", "/v2/health/ready"]


async def test_health_and_scrapes_are_not_logged(logged):
    for path in WATCHED:
        assert (await logged.http.get(path)).status_code in (200, 503)
    assert logged.lines() == []


@pytest.mark.parametrize("wanted", [AccessLogSettings(health=True)])
async def test_health_and_scrapes_are_logged_where_that_is_wished(logged):
    for path in WATCHED:
        await logged.http.get(path)
    assert [line["route"] for line in logged.lines()] == WATCHED


async def test_no_words_of_callers_are_in_any_line(logged, router):
    texts = {"model": "embed", "input": [SECRET, f"w5 {SECRET}"], "user": SECRET, SECRET: SECRET}
    headers = {"user-agent": SECRET, "cookie": SECRET, "authorization": SECRET, "baggage": f"a={SECRET}"}
    for body in (
        texts,
        {"model": "embed", "input": SECRET},
        {"model": "rerank", "query": SECRET, "documents": [SECRET]},
    ):
        for path in ("/v1/embeddings", "/v1/rerank", "/v1/classify", f"/v1/x?{SECRET}={SECRET}"):
            await logged.http.post(path, json=body, headers=headers)
    assert len(logged.lines()) == 12
    assert SECRET not in logged.file.read_text()


async def test_every_field_of_a_line_is_one_of_those_declared(logged):
    await logged.http.post("/v1/embeddings", json={"model": "embed", "input": "w5"})
    await logged.http.post("/v1/embeddings", json={"model": "x", "input": "w5"})
    assert all(set(line) <= set(FIELDS) for line in logged.lines())


def series(exposition: str) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    """Every series that is exposed."""
    families = text_string_to_metric_families(exposition)
    return {(each.name, tuple(sorted(each.labels.items()))) for family in families for each in family.samples}


async def hostile_request(logged: Logged, number: int) -> None:
    """A request of which everything that a caller can choose is new."""
    headers = {
        "x-request-id": f"id-{number}",
        "authorization": f"Bearer key-{number}",
        "user-agent": f"agent-{number}",
        "x-zooserve-class": f"class-{number}" if number % 7 == 0 else "bulk",
        "x-request-timeout-ms": str(number + 1000),
        "traceparent": f"00-{number + 1:032x}-{number + 1:016x}-01",
    }
    path = ("/v1/embeddings", "/v1/rerank", f"/v1/{number}", f"/v2/models/m{number}/infer", f"/v1/models/m{number}")
    method = ("POST", "POST", "POST", "GET", "GET", f"M{number}")[number % 6]
    body = {"model": f"model-{number}", "input": f"text {number}", f"field-{number}": number}
    await logged.http.request(method, path[number % 5], json=body, headers=headers)


async def test_five_thousand_strange_requests_add_no_series(logged, router):
    await logged.http.post("/v1/embeddings", json={"model": "embed", "input": "w5"})
    for number in range(300):  # every kind of refusal once
        await hostile_request(logged, number)
    before = series(router.metrics.exposition().decode())
    for number in range(300, 5300):
        await hostile_request(logged, number)
    assert series(router.metrics.exposition().decode()) == before
    assert router.metrics._registry.get_sample_value("zooserve_log_lines_dropped_total", {"log": "access"}) == 0
    logged.log._write_what_waits()
    words = {(line["route"], line["method"], line["outcome"], line.get("model")) for line in logged.lines()}
    assert len(words) < 40
