"""A failure whose text names no stage, looked up in the real trace log; Triton is a script."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import format_trace_id

from zooserve.errors import DeadlineExceeded
from zooserve.processes.ports import reserved_ports
from zooserve.settings import TracingSettings
from zooserve.triton.tensors import text_tensor
from zooserve_observability.spans import Span, write_spans
from zooserve_observability.trace_log import TraceLog
from zooserve_observability.trace_log.portions import Portion
from zooserve_observability.trace_receiver import TraceReceiver
from zooserve_observability.tracing import Tracing
from zooserve_router.backends.traces import TraceSource
from zooserve_router.backends.wire import ConnectionPool
from zooserve_router.backends.zoo import Inference, ZooBackend
from zooserve_router.stages import Ensemble, Stage, Step

TRACE = "ab" * 16
CALLER = "cd" * 8
EMBED = Ensemble(
    "embed",
    (
        Step(Stage("embed_tokenizer", "1"), {"text": "text"}, {"ids": "ids"}, bounded=True),
        Step(Stage("embed_encoder", "1"), {"ids": "ids"}, {"embedding": "embedding"}),
    ),
)
EXPIRED = b'{"error":"in ensemble \'embed\', Request timeout expired"}'


@dataclass
class Triton:
    """Answers that the request expired, and exports where it waited, if it exports at all."""

    log: TraceLog | None
    loses_the_ensemble: bool = False
    port: int = 0
    traceparent: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
        await reader.readexactly(int(headers["content-length"]))
        self.traceparent = headers.get("traceparent", "")
        if self.log is not None:
            self.log.add(write_spans(self._spans(), "triton"))
        writer.write(b"HTTP/1.1 503 X\r\nContent-Length: %d\r\n\r\n" % len(EXPIRED) + EXPIRED)
        await writer.drain()
        writer.close()

    def _spans(self) -> list[Span]:
        _, trace_id, parent_id, _ = self.traceparent.split("-")
        now = time.time_ns()
        steps = [
            Span(trace_id, _id(3), _id(2), "embed_tokenizer", now, now, _step("embed_tokenizer")),
            Span(trace_id, _id(4), _id(3), "compute", now, now),
            Span(trace_id, _id(5), _id(2), "embed_encoder", now, now, _step("embed_encoder")),
        ]
        if self.loses_the_ensemble:
            return steps
        request = Span(trace_id, _id(1), parent_id, "InferRequest", now, now)
        return [request, Span(trace_id, _id(2), _id(1), "embed", now, now, {"triton.model_name": "embed"}), *steps]


def _id(number: int) -> str:
    return f"{number:016x}"


def _step(model: str) -> dict[str, str]:
    return {"triton.model_name": model, "triton.trace_parent_id": "17"}


@pytest.fixture
async def log() -> TraceLog:
    return TraceLog(10**6)


async def listening(triton: Triton) -> asyncio.Server:
    server = await asyncio.start_server(triton.serve, "127.0.0.1", 0)
    triton.port = server.sockets[0].getsockname()[1]
    return server


@pytest.fixture
async def log_port(log: TraceLog) -> AsyncIterator[int]:
    port = reserved_ports(1)[0]
    async with TraceReceiver(log, "127.0.0.1", port).serving():
        yield port


async def failure(
    triton: Triton, log_port: int | None, traceparent: str = "", tracing: Tracing | None = None
) -> DeadlineExceeded:
    server = await listening(triton)
    pool = ConnectionPool("127.0.0.1", triton.port)
    log_pool = ConnectionPool("127.0.0.1", log_port or 0)
    traces = None if log_port is None else TraceSource(log_pool, within_s=0.2)
    zoo = ZooBackend(pool, ensembles={"embed": EMBED}, traces=traces)
    trace = (tracing or traced()).request({"traceparent": traceparent})
    asked = Inference("embed", (text_tensor("text", ["hi"]),), ("embedding",), "req_1", 5.0, trace)
    try:
        with pytest.raises(DeadlineExceeded) as failed:
            await zoo.infer(asked)
    finally:
        server.close()
        pool.close()
        log_pool.close()
        await asyncio.sleep(0.01)  # the connections' own turn to end
    return failed.value


def traced(exporter: InMemorySpanExporter | None = None, **settings: Any) -> Tracing:
    return Tracing.by(TracingSettings(**settings), SimpleSpanProcessor(exporter or InMemorySpanExporter()))


async def test_a_queue_that_expired_is_named_by_the_trace_and_the_trace_gets_the_verdict(
    log: TraceLog, log_port: int
) -> None:
    exporter = InMemorySpanExporter()
    error = await failure(Triton(log), log_port, f"00-{TRACE}-{CALLER}-01", traced(exporter))
    assert "waited for embed_encoder version 1" in error.message
    assert error.failed is not None
    assert (error.failed.label, error.failed.reason) == ("embed_encoder/1", "queue_timeout")
    (verdict,) = exporter.get_finished_spans()
    assert format_trace_id(verdict.context.trace_id) == TRACE
    assert verdict.attributes["zooserve.failed_stage"] == "embed_encoder"
    assert verdict.attributes["error.type"] == "DeadlineExceeded"
    assert not verdict.status.is_ok


async def test_steps_whose_ensemble_is_never_exported_tell_too(log: TraceLog, log_port: int) -> None:
    error = await failure(Triton(log, loses_the_ensemble=True), log_port, f"00-{TRACE}-{CALLER}-01")
    assert error.failed is not None
    assert error.failed.label == "embed_encoder/1"


async def test_without_a_callers_trace_the_request_gets_one_of_its_own(log: TraceLog, log_port: int) -> None:
    triton = Triton(log)
    await failure(triton, log_port)
    assert triton.traceparent.split("-")[1] != "0" * 32
    assert len(log) == 1


async def test_two_requests_of_one_trace_are_not_mixed_up(log: TraceLog, log_port: int) -> None:
    other = Span(TRACE, _id(77), _id(78), "embed_tokenizer", 0, 1, {"triton.model_name": "embed_tokenizer"})
    log.add(write_spans([other], "triton"))
    error = await failure(Triton(log), log_port, f"00-{TRACE}-{CALLER}-01")
    assert error.failed is not None
    assert error.failed.name == "embed_encoder"


async def test_a_trace_that_does_not_come_is_not_waited_for_long(log_port: int) -> None:
    error = await failure(Triton(None), log_port)
    assert "a stage that is not known (its text names none, and its trace did not arrive within 0.2 s)" in error.message
    assert error.failed is not None
    assert error.failed.label == "unknown"


async def test_a_log_that_is_gone_is_no_failure_of_its_own() -> None:
    error = await failure(Triton(None), reserved_ports(1)[0])
    assert "and the trace log does not answer" in error.message


async def test_without_a_log_the_callers_trace_goes_on_all_the_same() -> None:
    triton = Triton(None)
    error = await failure(triton, None, f"00-{TRACE}-{CALLER}-00")
    assert triton.traceparent.startswith(f"00-{TRACE}-")
    assert CALLER not in triton.traceparent, "the span in between is the router's"
    assert "and there is no trace log" in error.message


@pytest.mark.parametrize(
    ("settings", "flags"), [({"sampling": "head", "ratio": 1.0}, "00"), ({"sampling": "off"}, "01")]
)
async def test_what_is_not_sampled_gives_triton_no_context_and_its_failure_no_stage(
    log: TraceLog, log_port: int, settings: dict[str, Any], flags: str
) -> None:
    triton = Triton(None)
    error = await failure(triton, log_port, f"00-{TRACE}-{CALLER}-{flags}", traced(**settings))
    assert triton.traceparent == ""
    assert "and this request was not traced" in error.message


async def test_by_the_head_a_caller_who_samples_is_followed_whatever_the_ratio(log: TraceLog, log_port: int) -> None:
    triton = Triton(log)
    await failure(triton, log_port, f"00-{TRACE}-{CALLER}-01", traced(sampling="head", ratio=0.0))
    assert triton.traceparent.startswith(f"00-{TRACE}-")


async def test_a_log_that_reads_and_never_answers_holds_nobody_up() -> None:
    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    silent = await asyncio.start_server(take, "127.0.0.1", 0)
    try:
        async with asyncio.timeout(5):
            error = await failure(Triton(None), silent.sockets[0].getsockname()[1])
    finally:
        silent.close()
    assert "the trace log does not answer" in error.message


async def test_what_was_traced_before_the_request_is_not_looked_through() -> None:
    log = TraceLog(10**6)
    log.take([Portion(TRACE, b"unreadable", 1, (), failed=False, began_ns=0, ended_ns=0, received_ns=0)])
    port = reserved_ports(1)[0]
    async with TraceReceiver(log, "127.0.0.1", port).serving():
        error = await failure(Triton(log), port, f"00-{TRACE}-{CALLER}-01")
    assert error.failed is not None
    assert error.failed.label == "embed_encoder/1"


async def test_another_server_at_the_logs_port_is_told_from_it() -> None:
    async def stranger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        writer.close()

    server = await asyncio.start_server(stranger, "127.0.0.1", 0)
    try:
        error = await failure(Triton(None), server.sockets[0].getsockname()[1])
    finally:
        server.close()
    assert "what answers there is no trace log" in error.message
