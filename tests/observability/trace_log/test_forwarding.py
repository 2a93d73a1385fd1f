"""Kept traces on their way to a collector: a real server that is well, ill, slow, or not there."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from zooserve.errors import SetupError
from zooserve.processes.ports import reserved_ports
from zooserve_observability.span_protobuf import read_protobuf
from zooserve_observability.spans import Span
from zooserve_observability.trace_log.forwarding import Forwarding, headers_from
from zooserve_observability.trace_log.portions import portions_of
from zooserve_observability.trace_log.store import Settled

# partial_success { rejected_spans: 1 }
ONE_REJECTED = bytes.fromhex("0a020801")


class Collector:
    """Answers each export by the next status; the last one holds."""

    def __init__(self, *statuses: int | str, body: bytes = b"") -> None:
        self.statuses = list(statuses)
        self.body = body
        self.bodies: list[bytes] = []
        self.heads: list[str] = []
        self.port = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                self.heads.append(head)
                self.bodies.append(await reader.readexactly(int(head.split("content-length: ")[1].split("\r\n")[0])))
                status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
                if not await self._answered(writer, status):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answered(self, writer: asyncio.StreamWriter, status: int | str) -> bool:
        if status == "hangs":
            await asyncio.sleep(3600)
        if status == "drips":
            writer.write(b"HTTP/1.1 200 OK\r\n")
            while True:
                writer.write(b"x: y\r\n")
                await writer.drain()
                await asyncio.sleep(0.01)
        if status == "resets":
            writer.transport.abort()
            return False
        writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(self.body)}\r\n\r\n".encode() + self.body)
        return True

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Collector"]:
        """Listen for the block."""
        tasks: set[asyncio.Task[None]] = set()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            try:
                await self._serve(reader, writer)
            except asyncio.CancelledError:
                writer.transport.abort()

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0.01)

    @property
    def spans(self) -> list[Span]:
        """What came."""
        return [span for body in self.bodies for span in read_protobuf(body)]


def settled(spans: list[Span]) -> Settled:
    return Settled(spans[0].trace_id, "error", tuple(portions_of(spans)))


def forwarding_to(port: int, counted: Any, **bounds: Any) -> Forwarding:
    return Forwarding(
        f"http://127.0.0.1:{port}/v1/traces", {}, counted.metrics, **{"pauses_s": (0, 0), "timeout_s": 2, **bounds}
    )


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 (a thread's and a server's turn)
            await asyncio.sleep(0.01)


async def forwarded(forwarding: Forwarding, traces: list[Settled], done: Callable[[], Any]) -> None:
    async with forwarding.running():
        for trace in traces:
            forwarding.put(trace)
        await until(done)


async def test_a_collector_gets_whole_traces_as_they_were(counted: Any, request_of: Any, triton_spans: Any) -> None:
    async with Collector(200).serving() as collector:
        forwarding = Forwarding(
            f"http://127.0.0.1:{collector.port}/v1/traces", {"authorization": "Basic eA=="}, counted.metrics
        )
        traces = [settled(request_of(1)), settled(triton_spans)]
        await forwarded(forwarding, traces, lambda: counted.exported("forward") == 12)
    key = lambda span: span.span_id  # noqa: E731
    assert sorted(collector.spans, key=key) == sorted([*request_of(1), *triton_spans], key=key)
    assert len(collector.bodies) == 1
    assert "authorization: basic ea==" in collector.heads[0]
    assert "content-type: application/x-protobuf" in collector.heads[0]


@pytest.mark.parametrize("status", [400, 401, 404, 413, 500, 302])
async def test_a_refusal_is_not_tried_again(
    counted: Any, request_of: Any, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    async with Collector(status).serving() as collector:
        forwarding = forwarding_to(collector.port, counted)
        await forwarded(forwarding, [settled(request_of(1))], lambda: counted.dropped("forward", "failed") == 2)
        assert len(collector.bodies) == 1
    assert f"it answers {status}" in caplog.text


@pytest.mark.parametrize("ill", [429, 502, 503, 504, "resets", "hangs", "drips"])
async def test_what_may_pass_is_tried_again_and_a_well_collector_gets_it(
    counted: Any, request_of: Any, ill: int | str
) -> None:
    async with Collector(ill, 200).serving() as collector:
        forwarding = forwarding_to(collector.port, counted)
        await forwarded(forwarding, [settled(request_of(1))], lambda: counted.exported("forward") == 2)
        assert len(collector.bodies) == 2
    assert counted.dropped("forward", "failed") == 0


@pytest.mark.parametrize("ill", [503, "resets", "hangs", "drips"])
async def test_a_collector_that_stays_ill_is_given_up_and_said_once(
    counted: Any, request_of: Any, caplog: pytest.LogCaptureFixture, ill: int | str
) -> None:
    async with Collector(ill).serving() as collector:
        forwarding = forwarding_to(collector.port, counted, timeout_s=0.05)
        async with forwarding.running():
            for number in range(3):
                forwarding.put(settled(request_of(number)))
                await until(lambda number=number: counted.dropped("forward", "failed") == 2 * number + 2)
        assert 3 <= len(collector.bodies) <= 9  # on a busy machine one may not even get to send
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "do not reach the collector" in warnings[0].message


async def test_a_collector_that_is_not_there_is_as_one_that_is_ill(counted: Any, request_of: Any) -> None:
    forwarding = forwarding_to(reserved_ports(1)[0], counted)
    await forwarded(forwarding, [settled(request_of(1))], lambda: counted.dropped("forward", "failed") == 2)


async def test_spans_that_a_collector_rejects_are_counted(counted: Any, request_of: Any) -> None:
    async with Collector(200, body=ONE_REJECTED).serving() as collector:
        forwarding = forwarding_to(collector.port, counted)
        await forwarded(forwarding, [settled(request_of(1))], lambda: counted.exported("forward") == 1)
    assert counted.dropped("forward", "failed") == 1


@pytest.mark.parametrize("body", [b"{}", b"\xff" * 100_000, b"<html>"])
async def test_words_of_a_collector_that_mean_nothing_are_no_rejection(
    counted: Any, request_of: Any, body: bytes
) -> None:
    async with Collector(200, body=body).serving() as collector:
        forwarding = forwarding_to(collector.port, counted)
        await forwarded(forwarding, [settled(request_of(1))], lambda: counted.exported("forward") == 2)


async def test_more_than_may_wait_is_dropped_and_counted_while_a_collector_hangs(
    counted: Any, request_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    trace = settled(request_of(1))
    async with Collector("hangs").serving() as collector:
        forwarding = forwarding_to(collector.port, counted, most_bytes=10 * trace.size_bytes, timeout_s=60)
        async with forwarding.running():
            forwarding.put(trace)
            await until(lambda: collector.bodies)
            for _ in range(100):
                forwarding.put(trace)
            assert counted.dropped("forward", "queue_full") == 180
    assert "more traces wait for the collector" in caplog.text


async def test_the_end_waits_for_a_well_collector_and_not_for_an_ill_one(
    counted: Any, request_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Collector(200).serving() as well:
        forwarding = forwarding_to(well.port, counted)
        async with forwarding.running():
            forwarding.put(settled(request_of(1)))
        assert counted.exported("forward") == 2
    monkeypatch.setattr("zooserve_observability.trace_log.forwarding._STOP_S", 0.1)
    async with Collector("hangs").serving() as ill:
        forwarding = forwarding_to(ill.port, counted, timeout_s=3600)
        async with asyncio.timeout(20), forwarding.running():
            forwarding.put(settled(request_of(2)))
    assert counted.dropped("forward", "failed") == 2


async def test_a_password_in_the_address_is_not_logged(
    counted: Any, request_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with Collector(400).serving() as collector:
        url = f"http://somebody:hunter2@127.0.0.1:{collector.port}/v1/traces"
        forwarding = Forwarding(url, {}, counted.metrics)
        await forwarded(forwarding, [settled(request_of(1))], lambda: counted.dropped("forward", "failed") == 2)
        assert "authorization: basic " in collector.heads[0]
    assert f"127.0.0.1:{collector.port}" in caplog.text
    assert "hunter2" not in caplog.text


def test_headers_are_read_as_opentelemetry_writes_them() -> None:
    told = headers_from("Authorization=Basic%20eA%3D%3D, x-scope-orgid = zoo ,,")
    assert told == {"authorization": "Basic eA==", "x-scope-orgid": "zoo"}
    assert headers_from("") == {}
    assert headers_from("x.tenant=1") == {"x.tenant": "1"}


@pytest.mark.parametrize("bad", ["authorization", "=x", "a b=c", "x=%0d%0ay: z", "näme=x", "x=%00"])
def test_headers_that_are_none_are_refused_without_their_values(bad: str) -> None:
    with pytest.raises(SetupError, match="OTEL_EXPORTER_OTLP_HEADERS cannot be used") as refused:
        headers_from(bad)
    assert bad not in str(refused.value)


async def test_what_is_on_its_way_when_the_platform_stops_has_one_more_try(counted: Any, request_of: Any) -> None:
    async with Collector(503, 200).serving() as collector:
        forwarding = forwarding_to(collector.port, counted, pauses_s=(3600,))
        async with forwarding.running():
            forwarding.put(settled(request_of(1)))
            await until(lambda: collector.bodies)
        assert len(collector.bodies) == 2
    assert counted.exported("forward") == 2
    assert counted.dropped("forward", "failed") == 0
