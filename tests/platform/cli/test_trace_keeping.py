"""The trace log as the supervisor hosts it: exports in, memory, disk and a collector behind it."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from zooserve.errors import SetupError
from zooserve.processes.ports import reserved_ports
from zooserve.settings import Settings, TraceLogSettings, TracingSettings
from zooserve_cli.trace_keeping import traces_kept
from zooserve_observability.span_protobuf import read_protobuf, write_protobuf
from zooserve_observability.spans import Span, read_spans, write_spans
from zooserve_observability.trace_log.reading import TraceReader
from zooserve_observability.trace_metrics import TraceMetrics

PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json"}


def request(number: int, error: str = "") -> list[Span]:
    """The root of a request, and a stage."""
    said = {"zooserve.request_id": f"req_{number}", "zooserve.model": "embed", "zooserve.model_version": "1"}
    trace_id = f"{number:016x}{2**64 - number:016x}"  # sampled by no ratio below 1
    return [
        Span(trace_id, "1" * 16, "", "zooserve.request", 1, 2, said, error, 2, service="zooserve-router"),
        Span(trace_id, "2" * 16, "1" * 16, "embed", 1, 2, service="triton"),
    ]


class Hosted:
    """A log that is hosted for a test."""

    def __init__(self, file: Path, **tracing: Any) -> None:
        self.file = file
        self.registry = CollectorRegistry()
        self.settings = Settings(
            trace_log=TraceLogSettings(port=reserved_ports(1)[0], disk_bytes=2**20), tracing=TracingSettings(**tracing)
        )

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[httpx.AsyncClient]:
        """A client of it."""
        url = f"http://127.0.0.1:{self.settings.trace_log.port}"
        async with (
            traces_kept(self.settings, self.file, TraceMetrics(self.registry)),
            httpx.AsyncClient(base_url=url) as http,
        ):
            yield http

    def value(self, name: str, **labels: str) -> float:
        """What was counted."""
        return self.registry.get_sample_value(name, labels) or 0.0

    def decisions(self) -> dict[str, str]:
        """What stands on the disk."""
        return {found.request_id: found.decision for found in TraceReader(self.file).requests("newest", 9999)}


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 (a thread's turn)
            await asyncio.sleep(0.02)


async def exported(http: httpx.AsyncClient, spans: list[Span]) -> None:
    """The router's spans as its exporter sends them, Triton's as Triton does."""
    router, triton = spans
    answers = [
        await http.post("/v1/traces", content=write_spans([triton], "triton"), headers=JSON),
        await http.post("/v1/traces", content=write_protobuf([router], ""), headers=PROTOBUF),
    ]
    assert [answer.status_code for answer in answers] == [200, 200]


async def test_what_is_exported_is_in_memory_at_once_and_on_the_disk_once_it_has_settled(tmp_path: Path) -> None:
    hosted = Hosted(tmp_path / "traces.db")
    async with hosted.serving() as http:
        await exported(http, request(1))
        answer = await http.get(f"/v1/traces/{request(1)[0].trace_id}")
        assert sorted(span.name for span in read_spans(answer.content)) == ["embed", "zooserve.request"]
        await exported(http, request(2, error="failed"))
        await until(lambda: hosted.value("zooserve_spans_exported_total", exporter="log") == 4)
        assert hosted.decisions() == {"req_1": "left_out", "req_2": "error"}
        await exported(http, request(3))
    assert hosted.decisions() == {"req_1": "left_out", "req_2": "error", "req_3": "left_out"}


async def test_under_head_all_that_comes_is_kept(tmp_path: Path) -> None:
    hosted = Hosted(tmp_path / "traces.db", sampling="head", ratio=0.01)
    async with hosted.serving() as http:
        await exported(http, request(1))
    assert hosted.decisions() == {"req_1": "sampled"}


async def test_the_collector_gets_what_is_worth_it_with_the_environments_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-for=everything")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "authorization=Bearer%20abc")
    heads: list[str] = []
    spans: list[Span] = []

    async def collect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        heads.append(head)
        length = int(head.lower().split("content-length: ")[1].split("\r\n")[0])
        spans.extend(read_protobuf(await reader.readexactly(length)))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()

    collector = await asyncio.start_server(collect, "127.0.0.1", 0)
    port = collector.sockets[0].getsockname()[1]
    hosted = Hosted(tmp_path / "traces.db", endpoint=f"http://127.0.0.1:{port}/", ratio=0)
    async with hosted.serving() as http:
        await exported(http, request(1))
        await exported(http, request(2, error="failed"))
        await until(lambda: hosted.value("zooserve_spans_exported_total", exporter="forward") == 2)
    collector.close()
    assert {(span.trace_id, span.name, span.service, span.error) for span in spans} == {
        (span.trace_id, span.name, span.service, span.error) for span in request(2, error="failed")
    }
    assert heads[0].startswith("POST /v1/traces ")
    assert "authorization: Bearer abc" in heads[0]
    assert "x-for" not in heads[0]


async def test_headers_that_are_none_are_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "a secret without a name")
    with pytest.raises(SetupError, match="OTEL_EXPORTER_OTLP_HEADERS cannot be used"):
        async with Hosted(tmp_path / "traces.db", endpoint="http://127.0.0.1:1").serving():
            pytest.fail("it cannot have started")


@pytest.mark.parametrize(
    "address",
    ["localhost:4318", "ftp://host:4318", "http://", "http://host:99999", "http://[::1", "http://h?x=1", "http://h#x"],
)
def test_an_address_that_is_none_is_told(address: str) -> None:
    with pytest.raises(ValidationError):
        TracingSettings(endpoint=address)


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A real file system of 256 kB."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a file system can only be mounted by root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(file: Path) -> None:
    with suppress(OSError), file.open("wb", buffering=0) as ballast:
        while True:
            ballast.write(b"x" * 4096)


async def test_with_a_full_disk_exports_are_taken_and_found_and_writing_goes_on_once_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "small") as disk:
        ballast = disk / "ballast"
        fill(ballast)
        hosted = Hosted(disk / "traces.db")
        async with hosted.serving() as http:
            for number in range(1, 4):
                await exported(http, request(number))
                lost = 2 * number
                await until(lambda lost=lost: dropped(hosted) == lost)
            for number in range(1, 4):
                answer = await http.get(f"/v1/traces/{request(number)[0].trace_id}")
                assert len(read_spans(answer.content)) == 2
            assert caplog.text.count("kept in memory alone") == 1
            ballast.unlink()
            await exported(http, request(9))
            await until(lambda: hosted.value("zooserve_spans_exported_total", exporter="log") == 2)
            assert hosted.decisions() == {"req_9": "left_out"}


def dropped(hosted: Hosted) -> float:
    return hosted.value("zooserve_spans_dropped_total", exporter="log", reason="disk")
