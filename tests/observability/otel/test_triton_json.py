"""What Triton sends as JSON is OTLP's JSON to the letter, so that a Collector reads it: recorded from a real one."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import Parse, ParseError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

RECORDED = Path(__file__).parents[1] / "trace_log" / "triton_rag_query.json"
_IDS = ("traceId", "spanId", "parentSpanId")


def in_protobufs_spelling(part: Any) -> Any:
    """The same with ids in base64: the one thing that OTLP spells otherwise, in hexadecimal digits."""
    if isinstance(part, list):
        return [in_protobufs_spelling(inner) for inner in part]
    if not isinstance(part, dict):
        return part
    return {
        key: b64encode(bytes.fromhex(value)).decode() if key in _IDS else in_protobufs_spelling(value)
        for key, value in part.items()
    }


def parsed(export: Any) -> ExportTraceServiceRequest:
    """As protobuf's own reader of JSON takes it, which refuses what it does not know."""
    return Parse(json.dumps(in_protobufs_spelling(export)), ExportTraceServiceRequest())


def test_every_field_of_it_is_known_and_of_its_type() -> None:
    request = parsed(json.loads(RECORDED.read_text()))
    spans = [span for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans]
    assert len(spans) > 5
    assert {(len(span.trace_id), len(span.span_id)) for span in spans} == {(16, 8)}
    assert all(0 < span.start_time_unix_nano <= span.end_time_unix_nano for span in spans)
    (service,) = {
        each.value.string_value
        for resource in request.resource_spans
        for each in resource.resource.attributes
        if each.key == "service.name"
    }
    assert service == "triton"


def test_a_field_that_otlp_does_not_have_would_be_refused() -> None:
    export = json.loads(RECORDED.read_text())
    export["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["colour"] = "red"
    with pytest.raises(ParseError, match="colour"):
        parsed(export)
