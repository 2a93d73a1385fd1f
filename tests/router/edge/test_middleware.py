"""The edge: ids, bounds, hang-ups, errors; over a real socket where a socket is the point."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
import pytest
import uvicorn
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from zooserve.errors import BadInput
from zooserve.settings import TracingSettings
from zooserve_observability.metrics import RouterMetrics
from zooserve_observability.tracing import Tracing
from zooserve_router.context import RequestContext
from zooserve_router.middleware import Edge

Handler = Callable[[Request], Awaitable[Response]]
MAX_BODY = 1000


def app_of(handler: Handler) -> Starlette:
    app = Starlette(routes=[Route("/v1/x", handler, methods=["POST"])])
    app.state.metrics = RouterMetrics(CollectorRegistry())
    tracing = Tracing.by(TracingSettings(), SimpleSpanProcessor(InMemorySpanExporter()))
    app.add_middleware(Edge, metrics=app.state.metrics, max_body_bytes=MAX_BODY, max_deadline_s=60, tracing=tracing)
    return app


def context_of(request: Request) -> RequestContext:
    return request.scope["state"]["context"]


async def show(request: Request) -> Response:
    context = context_of(request)
    body = await request.body()
    return JSONResponse(
        {
            "id": context.request_id,
            "class": context.slo_class,
            "remaining_s": context.deadline.remaining_s(),
            "trace": context.trace.trace_id,
            "length": len(body),
        }
    )


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app_of(show)), base_url="http://router") as client:
        yield client


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[tuple[Starlette, int]]:
    """The app on a real socket, and its port."""
    app = app_of(handler)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off", http="httptools"))
    task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 (uvicorn offers no event)
        await asyncio.sleep(0.01)
    try:
        yield app, server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await task


async def spoken_to(port: int, *lines: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write("\r\n".join([*lines, "", ""]).encode())
    await writer.drain()
    return reader, writer


@pytest.mark.parametrize("given", ["abc", "A-1_b.c:d", "x" * 128])
async def test_a_sound_request_id_of_the_caller_is_kept(http, given):
    answer = await http.post("/v1/x", headers={"x-request-id": given})
    assert answer.json()["id"] == answer.headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "x" * 129, "a b", "a\tb", "ä", "<script>", "a,b"])
async def test_any_other_request_id_is_replaced(http, given):
    answer = await http.post("/v1/x", headers={"x-request-id": given.encode()})
    assert answer.headers["x-request-id"].startswith("req_")


async def test_left_out_headers_mean_no_class_and_the_longest_deadline(http):
    told = (await http.post("/v1/x")).json()
    assert told["class"] is None
    assert 59 < told["remaining_s"] <= 60


@pytest.mark.parametrize(
    ("headers", "low", "high"),
    [
        ({"x-request-timeout-ms": "2000"}, 1, 2),
        ({"x-stainless-read-timeout": "3"}, 2, 3),
        ({"x-stainless-read-timeout": "3.5", "x-request-timeout-ms": "2000"}, 1, 2),
        ({"x-request-timeout-ms": "1e9"}, 59, 60),
        ({"x-stainless-read-timeout": "inf"}, 59, 60),
    ],
)
async def test_the_deadline_is_what_the_client_waits_for_but_no_longer_than_ours(http, headers, low, high):
    assert low < (await http.post("/v1/x", headers=headers)).json()["remaining_s"] <= high


@pytest.mark.parametrize(
    "headers",
    [
        {"x-request-timeout-ms": "soon"},
        {"x-request-timeout-ms": "-5"},
        {"x-request-timeout-ms": "0"},
        {"x-request-timeout-ms": "nan"},
        {"x-stainless-read-timeout": "None"},
        {"x-zooserve-class": "urgent"},
        {"x-zooserve-class": ""},
    ],
)
async def test_headers_that_make_no_sense_are_refused_by_name(http, headers):
    answer = await http.post("/v1/x", headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == next(iter(headers))


@pytest.mark.parametrize(
    "trace",
    [
        "",
        "00-xyz",
        "a" * 500,
        f"00-{'ab' * 16}-{'cd' * 8}",
        f"00-{'0' * 32}-{'cd' * 8}-01",
        f"00-{'ab' * 16}-{'0' * 16}-01",
        f"ff-{'ab' * 16}-{'cd' * 8}-01",
    ],
)
async def test_a_malformed_traceparent_starts_a_trace_of_its_own(http, trace):
    found = (await http.post("/v1/x", headers={"traceparent": trace})).json()["trace"]
    assert re.fullmatch("[0-9a-f]{32}", found)
    assert found not in trace


async def test_a_callers_trace_goes_on(http):
    headers = {"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"}
    assert (await http.post("/v1/x", headers=headers)).json()["trace"] == "ab" * 16


async def test_a_body_at_the_cap_passes_and_one_byte_more_does_not(http):
    assert (await http.post("/v1/x", content=b"x" * MAX_BODY)).json()["length"] == MAX_BODY
    assert (await http.post("/v1/x", content=b"x" * (MAX_BODY + 1))).status_code == 413
    for declared, status in (("9" * 5000, 413), ("0" * 5000 + "1", 200)):
        assert (await http.post("/v1/x", content=b"x", headers={"content-length": declared})).status_code == status


async def test_an_endless_body_is_refused_while_it_is_still_coming():
    async with serving(show) as (_, port):
        reader, writer = await spoken_to(port, "POST /v1/x HTTP/1.1", "host: x", "transfer-encoding: chunked")
        writer.write(b"400\r\n" + b"x" * 1024 + b"\r\n")  # and no end
        await writer.drain()
        async with asyncio.timeout(10):
            status = await reader.readline()
        assert b"413" in status
        writer.close()


async def test_a_declared_length_over_the_cap_is_refused_before_a_byte_of_it():
    async with serving(show) as (_, port):
        reader, writer = await spoken_to(port, "POST /v1/x HTTP/1.1", "host: x", "content-length: 99999999")
        async with asyncio.timeout(10):
            head = await reader.readuntil(b"\r\n\r\n")
        assert b"413" in head
        assert b"connection: close" in head
        writer.close()


async def test_a_body_that_stalls_ends_at_the_deadline():
    async with serving(show) as (_, port):
        lines = ("POST /v1/x HTTP/1.1", "host: x", "content-length: 10", "x-request-timeout-ms: 50")
        reader, writer = await spoken_to(port, *lines)
        async with asyncio.timeout(10):
            assert b"504" in await reader.readline()
        writer.close()


async def test_a_client_that_hangs_up_cancels_the_handler():
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def wait(request: Request) -> Response:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return Response()

    async with serving(wait) as (app, port):
        _, writer = await spoken_to(port, "POST /v1/x HTTP/1.1", "host: x", "content-length: 0")
        await began.wait()
        writer.close()
        async with asyncio.timeout(10):
            await cancelled.wait()
    # the server has ended, and every request with it
    assert b'outcome="cancelled"' in app.state.metrics.exposition()
    assert b"zooserve_requests_in_flight 0.0" in app.state.metrics.exposition()


async def test_a_client_that_leaves_a_stream_ends_it():
    ended = asyncio.Event()

    async def stream(request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            try:
                yield b"one"
                await asyncio.Event().wait()
            finally:
                ended.set()

        return StreamingResponse(pieces())

    async with serving(stream) as (_, port):
        reader, writer = await spoken_to(port, "POST /v1/x HTTP/1.1", "host: x", "content-length: 0")
        await reader.readuntil(b"one")
        writer.close()
        async with asyncio.timeout(10):
            await ended.wait()


async def test_requests_on_a_kept_connection_are_not_taken_for_hang_ups():
    async with serving(show) as (_, port), httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        statuses = [(await client.post("/v1/x", content=b"x")).status_code for _ in range(20)]
    assert statuses == [200] * 20


async def test_what_nobody_foresaw_is_a_500_with_an_id_and_a_traceback_in_the_log(caplog):
    async def broken(request: Request) -> Response:
        raise ZeroDivisionError("secret detail")

    transport = httpx.ASGITransport(app_of(broken))
    async with httpx.AsyncClient(transport=transport, base_url="http://router") as client:
        with caplog.at_level(logging.ERROR):
            answer = await client.post("/v1/x", headers={"x-request-id": "find-me"})
    assert answer.status_code == 500
    assert "find-me" in answer.json()["error"]["message"]
    assert "secret" not in answer.text
    assert "find-me" in caplog.text
    assert "ZeroDivisionError" in caplog.text


async def test_an_error_counts_under_its_name():
    async def refuse(request: Request) -> Response:
        raise BadInput("no")

    app = app_of(refuse)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://router") as client:
        await client.post("/v1/x")
    assert b'outcome="BadInput"' in app.state.metrics.exposition()


async def test_what_fails_unexpectedly_is_logged_by_its_route_and_not_in_its_callers_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(request: Request) -> Response:
        raise ZeroDivisionError

    app = app_of(show)
    app.router.routes.append(Route("/v1/models/{name:path}", broken))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://router") as http:
        answer = await http.get("/v1/models/a%0d%1b[31mforged")
    assert answer.status_code == 500
    (record,) = [each for each in caplog.records if each.name == "zooserve_router.middleware"]
    assert (
        record.getMessage()
        == f"request {answer.headers['x-request-id']} to /v1/models/{{name:path}} failed unexpectedly"
    )
