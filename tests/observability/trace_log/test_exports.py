"""What the receiver takes: OTLP/HTTP as JSON and protobuf, plain and by gzip; and what it refuses."""

import gzip
import threading
from collections.abc import AsyncIterator
from typing import Any

import httpx
import orjson
import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace import Status as SpanStatus

from zooserve.processes.ports import reserved_ports
from zooserve_observability.span_protobuf import read_protobuf, write_protobuf
from zooserve_observability.spans import Event, Span, read_spans, write_spans
from zooserve_observability.trace_log import TraceLog
from zooserve_observability.trace_receiver import TraceReceiver

TRACE = "ab" * 16
JSON = {"content-type": "application/json"}
PROTOBUF = {"content-type": "application/x-protobuf"}
WHOLE = [
    Span(TRACE, "1" * 16, "", "zooserve.request", 5, 9, {"tokens": "7", "done": "true", "share": "0.5", "of": '["a"]'},
         "", 2, (), "zooserve-router", {"tokens": "intValue", "done": "boolValue", "share": "doubleValue"}),
    Span(TRACE, "2" * 16, "1" * 16, "embed", 6, 8, {"triton.model_name": "embed"}, "too late", 1,
         (Event("QUEUE_START", 6, {"n": "1"}),), "triton"),
]  # fmt: skip


@pytest.mark.parametrize(("write", "read"), [(write_spans, read_spans), (write_protobuf, read_protobuf)])
def test_what_is_written_is_read_again(write: Any, read: Any) -> None:
    assert read(write(WHOLE, "nobody")) == WHOLE


def test_both_forms_say_the_same() -> None:
    assert read_protobuf(write_protobuf(read_spans(write_spans(WHOLE, "")), "")) == WHOLE


def test_numbers_are_numbers_again_for_a_collector() -> None:
    export = ExportTraceServiceRequest.FromString(write_protobuf(WHOLE, ""))
    found = {entry.key: entry.value for entry in export.resource_spans[0].scope_spans[0].spans[0].attributes}
    assert found["tokens"] == AnyValue(int_value=7)
    assert found["done"] == AnyValue(bool_value=True)
    assert found["share"] == AnyValue(double_value=0.5)
    raw = orjson.loads(write_spans(WHOLE, ""))["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"]
    assert [entry["value"] for entry in raw[:3]] == [{"intValue": "7"}, {"boolValue": True}, {"doubleValue": 0.5}]


@pytest.fixture
async def log() -> TraceLog:
    return TraceLog(10**7)


@pytest.fixture
async def http(log: TraceLog) -> AsyncIterator[httpx.AsyncClient]:
    port = reserved_ports(1)[0]
    async with (
        TraceReceiver(log, "127.0.0.1", port).serving(),
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client,
    ):
        yield client


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip])
async def test_what_opentelemetrys_exporter_sends_is_found(
    http: httpx.AsyncClient, log: TraceLog, compression: Compression
) -> None:
    provider = TracerProvider(resource=Resource({"service.name": "zooserve-router"}), shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=f"{http.base_url}/v1/traces", compression=compression)
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    def request() -> str:
        span = provider.get_tracer("test").start_span("zooserve.request", kind=SpanKind.SERVER)
        span.set_attributes({"gen_ai.usage.input_tokens": 7, "gen_ai.response.finish_reasons": ["stop"]})
        span.set_status(SpanStatus(StatusCode.ERROR, "gone"))
        span.add_event("first_token", timestamp=5)
        span.end()
        return f"{span.get_span_context().trace_id:032x}"

    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(request()))
    thread.start()
    while thread.is_alive():
        await http.get(f"/v1/traces/{TRACE}")
    (span,) = log.spans(found[0])
    provider.shutdown()
    assert (span.name, span.kind, span.error, span.service) == ("zooserve.request", 2, "gone", "zooserve-router")
    assert span.attributes == {"gen_ai.usage.input_tokens": "7", "gen_ai.response.finish_reasons": '["stop"]'}
    assert span.events == (Event("first_token", 5),)


async def test_answers_come_in_the_form_of_the_export(http: httpx.AsyncClient) -> None:
    taken = await http.post("/v1/traces", content=write_protobuf(WHOLE, ""), headers=PROTOBUF)
    assert (taken.status_code, taken.headers["content-type"], taken.content) == (200, "application/x-protobuf", b"")
    refused = await http.post("/v1/traces", content=b"\xff", headers=PROTOBUF)
    assert (refused.status_code, refused.headers["content-type"]) == (400, "application/x-protobuf")
    assert "not an OTLP export" in Status.FromString(refused.content).message
    refused = await http.post("/v1/traces", content=b"[]", headers=JSON)
    assert (refused.status_code, refused.headers["content-type"]) == (400, "application/json")
    assert "not an OTLP export" in refused.json()["message"]


@pytest.mark.parametrize(("form", "write"), [(JSON, write_spans), (PROTOBUF, write_protobuf)])
async def test_gzip_is_inflated(http: httpx.AsyncClient, form: dict[str, str], write: Any) -> None:
    headers = {**form, "content-encoding": "gzip"}
    answer = await http.post("/v1/traces", content=gzip.compress(write(WHOLE, "")), headers=headers)
    assert answer.status_code == 200
    assert read_spans((await http.get(f"/v1/traces/{TRACE}")).content, TRACE) == WHOLE


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (gzip.compress(b"\0" * 200_000_000, 9), 413),
        (gzip.compress(write_spans(WHOLE, ""))[:-9], 400),
        (gzip.compress(write_spans(WHOLE, "")) * 2, 400),
        (write_spans(WHOLE, ""), 400),
        (b"", 400),
    ],
    ids=["a bomb", "cut off", "two", "none", "empty"],
)
async def test_what_is_no_honest_gzip_is_refused(http: httpx.AsyncClient, body: bytes, status: int) -> None:
    answer = await http.post("/v1/traces", content=body, headers={**JSON, "content-encoding": "gzip"})
    assert answer.status_code == status
    assert (await http.get(f"/v1/traces/{TRACE}")).status_code == 200


def hostile(**change: Any) -> bytes:
    span = {"traceId": TRACE, "spanId": "1" * 16, "name": "n", "startTimeUnixNano": "5", "endTimeUnixNano": "7"}
    return orjson.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [{**span, **change}]}]}]})


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {"stringValue": "deep"}
    for _ in range(levels):
        value = {"arrayValue": {"values": [value]}}
    return {"key": "k", "value": value}


DEEP = AnyValue(string_value="deep")
for _ in range(20):
    outer = AnyValue()
    outer.array_value.values.append(DEEP)
    DEEP = outer
DEEP_PROTOBUF = ExportTraceServiceRequest.FromString(write_protobuf(WHOLE[:1], ""))
DEEP_PROTOBUF.resource_spans[0].scope_spans[0].spans[0].attributes.add(key="k", value=DEEP)

HOSTILE = {
    "names that are numbers": hostile(name=5),
    "ids that are numbers": hostile(traceId=5),
    "short trace ids": hostile(traceId="ab"),
    "trace ids that are words": hostile(traceId="z" * 32),
    "trace ids with signs": hostile(traceId="+" + "a" * 31),
    "span ids that are words": hostile(spanId="z" * 16),
    "parents that are no ids": hostile(parentSpanId="root"),
    "endless span ids": hostile(spanId="1" * 10_000),
    "times that are words": hostile(startTimeUnixNano="soon"),
    "times that are no numbers": hostile(startTimeUnixNano="NaN"),
    "times before all time": hostile(startTimeUnixNano="-1"),
    "times after all time": hostile(endTimeUnixNano=str(2**64)),
    "numbers of many digits": hostile(endTimeUnixNano="9" * 5000),
    "a NaN": hostile().replace(b'"5"', b"NaN"),
    "attributes in a map": hostile(attributes={"a": "b"}),
    "attributes that are words": hostile(attributes=["a"]),
    "an attribute of no type": hostile(attributes=[{"key": "k", "value": {"wordValue": "v"}}]),
    "an attribute that is no value": hostile(attributes=[{"key": "k", "value": "v"}]),
    "text that is a map": hostile(attributes=[{"key": "k", "value": {"stringValue": {}}}]),
    "a truth that is a word": hostile(attributes=[{"key": "k", "value": {"boolValue": "yes"}}]),
    "an integer that is a word": hostile(attributes=[{"key": "k", "value": {"intValue": "many"}}]),
    "100,000 attributes": hostile(attributes=[{"key": "k", "value": {}}] * 100_000),
    "a value of 20 levels": hostile(attributes=[nested(20)]),
    "100,000 events": hostile(events=[{"name": "e", "timeUnixNano": "1"}] * 100_000),
    "an event after all time": hostile(events=[{"name": "e", "timeUnixNano": str(2**70)}]),
    "an event before all time": hostile(events=[{"name": "e", "timeUnixNano": -5}]),
    "a kind of no name": hostile(kind="SPAN_KIND_WILD"),
    "an integer of many digits": hostile(attributes=[{"key": "k", "value": {"intValue": "9" * 100}}]),
    "100,000 brackets": b"[" * 100_000,
    "a status that is a word": hostile(status="bad"),
    "spans that are none": orjson.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [1]}]}]}),
    "nothing": b"",
}
LATE = ExportTraceServiceRequest.FromString(write_protobuf(WHOLE[:1], ""))
LATE.resource_spans[0].scope_spans[0].spans[0].events.add(name="e", time_unix_nano=2**64 - 1)

HOSTILE_PROTOBUF = {
    "an event after all time": LATE.SerializeToString(),
    "bytes of chance": bytes(range(255, 0, -1)),
    "a value of 20 levels": DEEP_PROTOBUF.SerializeToString(),
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
async def test_a_hostile_export_is_refused_and_harms_nothing(
    http: httpx.AsyncClient, log: TraceLog, body: bytes
) -> None:
    assert (await http.post("/v1/traces", content=write_spans(WHOLE, ""), headers=JSON)).status_code == 200
    assert (await http.post("/v1/traces", content=body, headers=JSON)).status_code == 400
    assert log.spans(TRACE) == WHOLE


@pytest.mark.parametrize("body", HOSTILE_PROTOBUF.values(), ids=HOSTILE_PROTOBUF.keys())
async def test_a_hostile_export_in_protobuf_is_refused_too(http: httpx.AsyncClient, log: TraceLog, body: bytes) -> None:
    assert (await http.post("/v1/traces", content=write_protobuf(WHOLE, ""), headers=PROTOBUF)).status_code == 200
    assert (await http.post("/v1/traces", content=body, headers=PROTOBUF)).status_code == 400
    assert log.spans(TRACE) == WHOLE


async def test_a_million_attributes_in_protobuf_are_refused(http: httpx.AsyncClient) -> None:
    export = ExportTraceServiceRequest.FromString(write_protobuf(WHOLE[:1], ""))
    span = export.resource_spans[0].scope_spans[0].spans[0]
    for _ in range(1_000_000):
        span.attributes.add()
    answer = await http.post("/v1/traces", content=export.SerializeToString(), headers=PROTOBUF)
    assert answer.status_code == 400
    assert (await http.get(f"/v1/traces/{TRACE}")).status_code == 200
