"""The log of traces: what it finds, what it waits for, what it forgets."""

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest

from zooserve.processes.ports import reserved_ports
from zooserve_observability.spans import Span, below, read_spans, write_spans
from zooserve_observability.trace_log import TraceLog
from zooserve_observability.trace_log.portions import unpacked
from zooserve_observability.trace_receiver import TraceReceiver

TRACE = "ab" * 16


def span(name: str, span_id: str, parent_id: str = "", trace_id: str = TRACE, error: str = "") -> Span:
    return Span(trace_id, span_id * 16, parent_id * 16, name, 1, 2, {"triton.model_name": name}, error, service="test")


def export(*spans: Span) -> bytes:
    return write_spans(spans, "test")


def names(spans: list[Span]) -> list[str]:
    return [found.name for found in spans]


def test_what_is_written_is_read_again() -> None:
    whole = [span("embed", "1", error="too late"), span("embed_tokenizer", "2", "1")]
    assert read_spans(export(*whole, span("other", "3", trace_id="cd" * 16)), TRACE) == whole


def test_triton_leaves_status_and_the_roots_parent_out() -> None:
    body = (
        b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"%s","spanId":"%s","name":"embed","kind":1,'
        b'"startTimeUnixNano":"5","endTimeUnixNano":"7","attributes":[{"key":"triton.model_version",'
        b'"value":{"stringValue":"1"}}]}]}]}]}'
    ) % (TRACE.encode(), b"1" * 16)
    (found,) = read_spans(body, TRACE)
    assert (found.parent_id, found.error, found.start_ns, found.attributes) == (
        "",
        "",
        5,
        {"triton.model_version": "1"},
    )


def test_spans_below_one_are_found_at_any_depth_and_circles_end() -> None:
    spans = [span("a", "1", "9"), span("b", "2", "1"), span("c", "3", "8"), span("d", "4", "4")]
    assert names(below(spans, "9" * 16)) == ["a", "b"]
    assert names(below(spans, "4" * 16)) == ["d"]


@pytest.mark.parametrize("junk", [b"", b"{}", b"[]", b"\xff\xfe"])
async def test_what_is_no_export_is_refused(junk: bytes) -> None:
    log = TraceLog(1000)
    with pytest.raises(ValueError, match="not an OTLP export of spans"):
        log.add(junk)
    assert log.size_bytes == 0


async def test_an_empty_export_is_none_the_worse(http: httpx.AsyncClient) -> None:
    assert (await http.post("/v1/traces", content=b'{"resourceSpans": []}', headers=JSON)).status_code == 200
    protobuf = {"content-type": "application/x-protobuf"}
    assert (await http.post("/v1/traces", content=b"", headers=protobuf)).status_code == 200


async def test_the_oldest_traces_are_forgotten_at_the_bound_of_bytes() -> None:
    probe = TraceLog(10**6)
    probe.add(export(span("embed", "1")))
    log = TraceLog(probe.size_bytes * 3)
    for number in range(10):
        log.add(export(span("embed", "1", trace_id=f"{number:032x}")))
    assert log.size_bytes == probe.size_bytes * 3
    assert [number for number in range(10) if log.spans(f"{number:032x}")] == [7, 8, 9]


async def test_many_small_traces_are_bounded_too() -> None:
    log = TraceLog(10**9, max_traces=5)
    for number in range(20):
        log.add(export(span("embed", "1", trace_id=f"{number:032x}")))
    assert len(log) == 5


async def test_of_a_trace_that_is_larger_than_an_answer_the_newest_is_told() -> None:
    log = TraceLog(10**8)
    for number in range(40):
        log.add(export(*[replace(span("embed", "1"), span_id=f"{number * 1000 + own:016x}") for own in range(1000)]))
    told = log.spans(TRACE)
    assert 1000 <= len(told) < 40_000
    assert [int(found.span_id, 16) for found in told] == list(range(40_000))[-len(told) :]


async def test_an_answer_that_nobody_reads_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zooserve_observability.trace_receiver._BODY_S", 0.05)
    log = TraceLog(10**8)
    for number in range(20):
        log.add(export(*[replace(span("embed", "1"), span_id=f"{number * 1000 + own:016x}") for own in range(1000)]))
    port = reserved_ports(1)[0]
    receiver = TraceReceiver(log, "127.0.0.1", port)
    async with receiver.serving():
        with socket.create_connection(("127.0.0.1", port)) as sleeper:
            sleeper.settimeout(30)
            sleeper.sendall(f"GET /v1/traces/{TRACE} HTTP/1.1\r\n\r\n".encode() * 10)  # more than a socket has room for
            async with asyncio.timeout(30):
                while not receiver.bytes_in_hand:  # noqa: ASYNC110 (a socket's turn)
                    await asyncio.sleep(0.001)
                while receiver.bytes_in_hand:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            told = await asyncio.to_thread(lambda: b"".join(iter(lambda: sleeper.recv(2**16), b"")))
            assert not told.endswith(write_spans(log.spans(TRACE), "zooserve")[-1000:])


async def test_an_export_larger_than_the_bound_is_not_kept() -> None:
    log = TraceLog(10)
    log.add(export(span("embed", "1")))
    assert log.size_bytes == 0
    assert log.spans(TRACE) == []


async def test_asking_waits_for_the_span_that_ends_the_request() -> None:
    log = TraceLog(10**6)
    log.add(export(span("embed_tokenizer", "2", "1")))
    asked = asyncio.create_task(log.spans_below(TRACE, "9" * 16, "embed", within_s=30))
    await asyncio.sleep(0)
    assert not asked.done()
    log.add(export(span("embed", "1", "9")))
    assert names(await asked) == ["embed", "embed_tokenizer"]


async def test_a_portion_is_read_once_however_many_come_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []

    def reading(trace_id: str, body: bytes) -> list[Span]:
        read.append(body)
        return unpacked(trace_id, body)

    monkeypatch.setattr("zooserve_observability.trace_log.memory.unpacked", reading)
    log = TraceLog(10**6)
    log.add(export(span("embed_tokenizer", "2", "1")))
    asked = asyncio.create_task(log.spans_below(TRACE, "9" * 16, "embed", within_s=30))
    for number in range(3):
        await asyncio.sleep(0)
        log.add(export(span("other", "3", trace_id=f"{number:032x}")))
    log.add(export(span("embed", "1", "9")))
    assert names(await asked) == ["embed", "embed_tokenizer"]
    assert len(read) == 2


async def test_what_came_before_a_moment_can_be_left_out() -> None:
    moments = iter([100, 200])
    log = TraceLog(10**6, clock_ns=lambda: next(moments))
    log.add(export(span("early", "1", "9")))
    log.add(export(span("late", "2", "9")))
    assert names(log.spans(TRACE)) == ["early", "late"]
    assert names(log.spans(TRACE, since_ns=200)) == ["late"]
    assert names(await log.spans_below(TRACE, "9" * 16, "late", within_s=1, since_ns=150)) == ["late"]


async def test_asking_ends_after_its_time_with_what_there_is() -> None:
    log = TraceLog(10**6)
    log.add(export(span("embed_tokenizer", "2", "9")))
    assert names(await log.spans_below(TRACE, "9" * 16, "embed", within_s=0.01)) == ["embed_tokenizer"]


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    port = reserved_ports(1)[0]
    async with (
        TraceReceiver(TraceLog(10**6), "127.0.0.1", port).serving(),
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        yield client


JSON = {"content-type": "application/json"}


async def test_a_trace_goes_in_and_comes_out(http: httpx.AsyncClient) -> None:
    assert (await http.post("/v1/traces", content=export(span("embed", "1", "9")), headers=JSON)).status_code == 200
    answer = await http.get(f"/v1/traces/{TRACE}", params={"below": "9" * 16, "name": "embed", "within_ms": 100})
    assert names(read_spans(answer.content, TRACE)) == ["embed"]
    assert read_spans((await http.get(f"/v1/traces/{'0' * 32}")).content, "0" * 32) == []


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("POST", "/v1/traces", b"not json", JSON, 400),
        ("POST", "/v1/traces", b"x", {"content-type": "text/plain"}, 415),
        ("POST", "/v1/traces", b"x", {**JSON, "content-encoding": "br"}, 415),
        ("POST", "/v1/metrics", b"{}", JSON, 404),
        ("GET", "/v1/traces/../etc", b"", {}, 404),
        ("GET", f"/v1/traces/{TRACE}?below=1&within_ms=soon", b"", {}, 400),
        ("GET", f"/v1/traces/{TRACE}?below=1&within_ms=nan", b"", {}, 400),
        ("GET", f"/v1/traces/{TRACE}?since_ns=then", b"", {}, 400),
    ],
)
async def test_what_it_cannot_read_is_refused_and_it_serves_on(
    http: httpx.AsyncClient, method: str, path: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    assert (await http.request(method, path, content=body, headers=headers)).status_code == status
    assert (await http.get(f"/v1/traces/{TRACE}")).status_code == 200


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"hello\r\n\r\n", b"400"),
        (b"POST /v1/traces HTTP/1.1\r\ncontent-length: 99999999\r\n\r\n", b"413"),
        (b"POST /v1/traces HTTP/1.1\r\ncontent-length: -1\r\n\r\n", b"400"),
        (b"POST /v1/traces HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", b"411"),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 20_000 + b"\r\n\r\n", b"431"),
    ],
)
async def test_what_is_no_request_ends_its_connection(raw: bytes, status: bytes) -> None:
    port = reserved_ports(1)[0]
    async with TraceReceiver(TraceLog(10**6), "127.0.0.1", port).serving():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(raw)
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 " + status)


async def test_more_connections_than_it_keeps_are_closed_and_those_it_has_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("zooserve_observability.trace_receiver._CONNECTIONS", 1)
    port = reserved_ports(1)[0]
    async with TraceReceiver(TraceLog(10**6), "127.0.0.1", port).serving():
        kept_reader, kept = await asyncio.open_connection("127.0.0.1", port)
        await _asked(kept_reader, kept)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()
        assert (await _asked(kept_reader, kept)).startswith(b"HTTP/1.1 200")
        kept.close()


async def _asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    writer.write(f"GET /v1/traces/{TRACE} HTTP/1.1\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
    return head
