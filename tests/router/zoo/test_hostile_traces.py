"""Whatever callers send as trace context, baggage or request id, over a real socket: the request is served."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import uvicorn
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from zooserve.processes.ports import reserved_ports
from zooserve.settings import Settings, TracingSettings
from zooserve.triton.tensors import InferenceAnswer
from zooserve_observability.access_log import AccessLog
from zooserve_observability.tracing import Tracing, traceparent
from zooserve_router.app import bare_app
from zooserve_router.backends.zoo import Inference
from zooserve_router.haproxy import install

TRACE, PARENT = "ab" * 16, "cd" * 8
SOUND = f"00-{TRACE}-{PARENT}-01".encode()

Header = tuple[bytes, bytes]


@dataclass(frozen=True)
class Served:
    """The router on a real socket, with its spans and its access log."""

    port: int
    exporter: InMemorySpanExporter
    log: AccessLog
    file: Path
    sent: list[str | None]
    """The trace contexts that the zoo was asked with."""

    async def embed(self, *headers: Header) -> tuple[int, dict[str, str]]:
        """The status and headers of one embedding, asked for with exactly these header lines."""
        body = b'{"model": "embed", "input": "w5"}'
        own = ((b"host", b"x"), (b"connection", b"close"), (b"content-length", b"%d" % len(body)))
        lines = b"".join(name + b": " + value + b"\r\n" for name, value in (*own, *headers))
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"POST /v1/embeddings HTTP/1.1\r\n" + lines + b"\r\n" + body)
        head, _, _ = (await reader.read()).decode("latin-1").partition("\r\n\r\n")
        writer.close()
        status, *told = head.split("\r\n")
        return int(status.split()[1]), {name.lower(): value for name, value in (line.split(": ", 1) for line in told)}

    @property
    def root(self) -> ReadableSpan:
        """The root of the last trace."""
        return [span for span in self.exporter.get_finished_spans() if span.name == "zooserve.request"][-1]

    def lines(self) -> list[dict]:
        self.log._write_what_waits()
        return [json.loads(line) for line in self.file.read_bytes().splitlines()]


@pytest.fixture
def tracing() -> TracingSettings:
    return TracingSettings()


@pytest.fixture
async def served(router, bounds, tracing, tmp_path, monkeypatch) -> AsyncIterator[Served]:
    settings, exporter = Settings(state_dir=tmp_path), InMemorySpanExporter()
    sent: list[str | None] = []
    infer = router.zoo.infer

    async def noting(wanted: Inference) -> InferenceAnswer:
        sent.append(traceparent(wanted.trace.root))
        return await infer(wanted)

    monkeypatch.setattr(router.zoo, "infer", noting)
    log = AccessLog.by(settings, router.metrics.logs)
    assert log is not None
    app = bare_app(bounds, router.metrics, None, Tracing.by(tracing, SimpleSpanProcessor(exporter)), log)
    app.state.services = router.services
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off", http="httptools"))
    task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 (uvicorn offers no event)
        await asyncio.sleep(0.01)
    try:
        yield Served(server.servers[0].sockets[0].getsockname()[1], exporter, log, settings.access_log_file, sent)
    finally:
        server.should_exit = True
        await task


def parents(*values: bytes) -> Sequence[Header]:
    return [(b"traceparent", value) for value in values]


MALFORMED = [
    b"",
    b"00",
    b"garbage",
    b"a" * 10_000,
    f"00-{TRACE[:-1]}-{PARENT}-01".encode(),
    f"00-{TRACE}0-{PARENT}-01".encode(),
    f"00-{TRACE}-{PARENT[:-1]}-01".encode(),
    f"00-{TRACE}-{PARENT}0-01".encode(),
    f"00-{TRACE}-{PARENT}".encode(),
    f"00-{TRACE}-{PARENT}-1".encode(),
    f"00-{TRACE}-{PARENT}-001".encode(),
    f"00-{TRACE}-{PARENT}-01-extra".encode(),
    f"0-{TRACE}-{PARENT}-01".encode(),
    SOUND.upper(),
    f"00-{TRACE.upper()}-{PARENT}-01".encode(),
    f"ff-{TRACE}-{PARENT}-01".encode(),
    f"00-{'0' * 32}-{PARENT}-01".encode(),
    f"00-{TRACE}-{'0' * 16}-01".encode(),
    f"00-{'zz' * 16}-{PARENT}-01".encode(),
    f"00-{TRACE}-{PARENT}-0x".encode(),
    f"00_{TRACE}_{PARENT}_01".encode(),
    SOUND.replace(b"ab", b"\xc3\xa4", 1),
    SOUND.replace(b"ab", b"\xff\xfe", 1),
    SOUND + b"\xa0",
    SOUND + b"," + SOUND,
    SOUND + b";x=1",
]


@pytest.mark.parametrize("given", MALFORMED)
async def test_a_malformed_traceparent_starts_a_trace_of_its_own(served, router, caplog, given):
    with caplog.at_level(logging.WARNING):
        status, _ = await served.embed(*parents(given), (b"tracestate", b"a=1"))
    assert status == 200
    assert served.root.parent is None
    assert f"{served.root.context.trace_id:032x}" not in given.decode("latin-1").lower()
    assert (
        router.zoo.asked[-1].trace.trace_id == f"{served.root.context.trace_id:032x}" == served.lines()[-1]["trace_id"]
    )
    assert caplog.messages == []


@pytest.mark.parametrize(
    "given",
    [
        SOUND,
        b"  " + SOUND + b" \t",
        f"00-{TRACE}-{PARENT}-00".encode(),
        f"00-{TRACE}-{PARENT}-ff".encode(),
        f"01-{TRACE}-{PARENT}-01-extra".encode(),
        f"fe-{TRACE}-{PARENT}-01-what-will-be".encode(),
        f"cc-{TRACE}-{PARENT}-01".encode(),
    ],
)
async def test_a_trace_goes_on_also_one_of_a_version_to_come(served, router, given):
    status, _ = await served.embed(*parents(given))
    assert status == 200
    assert f"{served.root.context.trace_id:032x}" == TRACE == served.lines()[-1]["trace_id"]
    assert f"{served.root.parent.span_id:016x}" == PARENT
    assert (served.sent[-1] or "").startswith(f"00-{TRACE}-")


async def test_several_traceparents_are_none(served):
    status, _ = await served.embed(*parents(SOUND, SOUND.replace(b"ab", b"ba")))
    assert status == 200
    assert served.root.parent is None


@pytest.mark.parametrize(
    ("states", "kept"),
    [
        ([b"a=1,b=2"], {"a": "1", "b": "2"}),
        ([b"a=1", b"b=2"], {"a": "1", "b": "2"}),
        ([b"a=1,,", b""], {"a": "1"}),
        ([b",".join(b"k%d=v" % number for number in range(33))], {}),
        ([b"k%d=v" % number for number in range(33)], {}),
        ([b"a=" + b"x" * 600], {}),
        ([b"a=" + b"x" * 10_000], {}),
        ([b"a=1"] * 200, {}),
        ([b"A=1"], {}),
        ([b"a=1,a=2"], {}),
        ([b"a"], {}),
        ([b"=;="], {}),
        ([b"a=\xc3\xa4"], {}),
    ],
)
async def test_a_bad_tracestate_is_left_out_and_its_trace_goes_on(served, caplog, states, kept):
    with caplog.at_level(logging.WARNING):
        status, _ = await served.embed(*parents(SOUND), *((b"tracestate", state) for state in states))
    assert status == 200
    assert f"{served.root.context.trace_id:032x}" == TRACE
    assert dict(served.root.context.trace_state) == kept
    assert caplog.messages == []


async def test_200_small_baggage_entries_are_passed_over(served, router):
    entries = [(b"baggage", b"key%d=value%d" % (number, number)) for number in range(200)]
    joined = b",".join(value for _, value in entries)
    for headers in (entries, [(b"baggage", joined)], [(b"baggage", b"%%%;;;===\xff")]):
        status, _ = await served.embed(*parents(SOUND), *headers)
        assert status == 200
        assert f"{served.root.context.trace_id:032x}" == TRACE
    assert "value7" not in json.dumps(served.lines())
    assert not any("value7" in str(span.attributes) for span in served.exporter.get_finished_spans())


@pytest.mark.parametrize(
    "given",
    [b"x" * 10_000, b"a b", b'a"}', b"a\xc3\xa4", b"\xff\xfe", b"../../etc", b"{{7*7}}", b"a\tb", b"a,b"],
)
async def test_a_hostile_request_id_is_replaced_and_never_repeated(served, given):
    status, headers = await served.embed((b"x-request-id", given))
    (line,) = served.lines()
    assert status == 200
    assert headers["x-request-id"] == line["request_id"] == served.root.attributes["zooserve.request_id"]
    assert line["request_id"].startswith("req_")
    assert given.decode("latin-1") not in json.dumps(line)


NAMES = [b"x-request-id", b"traceparent", b"tracestate", b"baggage", b"authorization"]


@pytest.mark.parametrize(
    "value",
    [
        b"a\nb",
        b"a\r\n b",
        b"a\rb",
        b"a\x00b",
        b"\x00",
        b"\x1b[31m",
        b"a\x7f",
        b"a\r\nx-injected: 1",
        b"a\r\n\r\nGET / HTTP/1.1",
    ],
)
async def test_newlines_and_nulls_get_no_further_than_http_lets_them(served, value):
    """Either the server refuses the bytes or the router passes them over; no line breaks, and the next is served."""
    for name in NAMES:
        status, headers = await served.embed((name, value))
        assert status in (200, 400)
        assert "x-injected" not in headers
        assert (await served.embed())[0] == 200
    assert all(line["request_id"].startswith("req_") or line["request_id"] == "a" for line in served.lines())
    assert served.lines()[-1]["status"] == 200


@pytest.fixture
async def behind_haproxy(served, tmp_path) -> AsyncIterator[Served]:
    """The same router, reached through the real HAProxy as Ray's configuration of it is rewritten."""
    (port,) = reserved_ports(1)
    configuration = tmp_path / "haproxy.cfg"
    configuration.write_text(
        "global\n    maxconn 100\n    tune.bufsize 16384\ndefaults\n    mode http\n    timeout client 60s\n"
        "    timeout server 60s\n    timeout connect 5s\n    errorfile 502 /nowhere/500.http\n"
        f"frontend http_frontend\n    bind 127.0.0.1:{port}\n    default_backend replicas\n"
        f"backend replicas\n    server replica 127.0.0.1:{served.port}\n"
    )
    process = await asyncio.create_subprocess_exec(install(tmp_path / "bin"), "-db", "-f", configuration)
    try:
        while True:
            with suppress(ConnectionError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                break
            assert process.returncode is None
            await asyncio.sleep(0.05)
        yield replace(served, port=port)
    finally:
        process.terminate()
        await process.wait()


async def test_what_is_served_without_haproxy_is_served_through_it(behind_haproxy):
    baggage = [(b"baggage", b"key%d=value%d" % (number, number)) for number in range(200)]
    joined = [(b"baggage", b",".join(value for _, value in baggage))]
    for headers in (baggage, joined, [(b"x-request-id", b"x" * 10_000)], parents(b"a" * 10_000), parents(b"\xff\xfe")):
        status, told = await behind_haproxy.embed(*headers)
        assert status == 200
        assert told["x-request-id"] == behind_haproxy.lines()[-1]["request_id"]


@pytest.mark.parametrize(
    "headers",
    [
        [(b"x-request-id", b"a\nb")],
        [(b"x-request-id", b"a\rb")],
        [(b"x-request-id", b"a\x00b")],
        [(b"x-request-id", b"x" * 20_000)],
        [(b"baggage", b"a=1")] * 600,
    ],
)
async def test_what_is_no_http_gets_no_further_than_haproxy(behind_haproxy, headers):
    assert (await behind_haproxy.embed(*headers))[0] == 400
    assert (await behind_haproxy.embed())[0] == 200
    assert len(behind_haproxy.lines()) == 1


def series(exposition: bytes) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    families = text_string_to_metric_families(exposition.decode())
    return {(each.name, tuple(sorted(each.labels.items()))) for family in families for each in family.samples}


async def test_no_hostile_header_makes_a_series(served, router):
    await served.embed()
    before = series(router.metrics.exposition())
    for value in MALFORMED:
        headers = [(name, value) for name in (b"traceparent", b"tracestate", b"x-request-id", b"baggage", b"x-api-key")]
        assert (await served.embed(*headers))[0] == 200
    assert series(router.metrics.exposition()) == before


HEAD = [TracingSettings(sampling="head", ratio=0.0), TracingSettings(sampling="head", ratio=1.0)]


@pytest.mark.parametrize("tracing", HEAD)
@pytest.mark.parametrize(("flags", "traced"), [("01", True), ("00", False), ("03", True), ("02", False)])
async def test_by_head_the_callers_decision_holds_whatever_the_ratio(served, router, flags, traced):
    status, _ = await served.embed(*parents(f"00-{TRACE}-{PARENT}-{flags}".encode()))
    assert status == 200
    assert (served.sent[-1] is not None) is traced
    assert bool(served.exporter.get_finished_spans()) is traced
    assert served.lines()[-1]["trace_id"] == TRACE


@pytest.mark.parametrize(("tracing", "traced"), [(HEAD[0], False), (HEAD[1], True)])
async def test_by_head_the_ratio_decides_for_who_did_not(served, router, traced):
    for headers in ((), parents(b"garbage")):
        assert (await served.embed(*headers))[0] == 200
        assert (served.sent[-1] is not None) is traced


@pytest.mark.parametrize("flags", ["00", "01"])
async def test_by_tail_every_request_is_traced_whatever_the_caller_decided(served, router, flags):
    await served.embed(*parents(f"00-{TRACE}-{PARENT}-{flags}".encode()))
    assert (served.sent[-1] or "").endswith("-01")
    assert f"{served.root.parent.span_id:016x}" == PARENT


@pytest.mark.parametrize("tracing", [TracingSettings(sampling="off")])
async def test_without_tracing_a_line_has_the_callers_trace_or_none(served):
    await served.embed(*parents(SOUND))
    await served.embed()
    first, second = served.lines()
    assert first["trace_id"] == TRACE
    assert "trace_id" not in second
    assert served.sent == [None, None]
