"""Spans as OTLP/HTTP carries them in protobuf: what OpenTelemetry's exporters send, and collectors take."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from zooserve_observability.spans import (
    DEEPEST,
    ERROR,
    FAILED,
    LAST_NS,
    MOST_ATTRIBUTES,
    MOST_EVENTS,
    Event,
    Span,
    Typed,
    by_service,
    checked,
)

__all__ = ["read_protobuf", "write_protobuf"]

_NUMBERS = {"int_value": "intValue", "double_value": "doubleValue", "bool_value": "boolValue"}
_NONE: Mapping[str, str] = {}


def read_protobuf(body: bytes) -> list[Span]:
    """The spans in an export. Raises ValueError when it is none."""
    try:
        exported = ExportTraceServiceRequest.FromString(body)
    except DecodeError as exc:
        raise ValueError(f"not an OTLP export of spans: {exc}") from exc
    return [
        _span(raw, service)
        for resource in exported.resource_spans
        for service in (_service(resource),)
        for scope in resource.scope_spans
        for raw in scope.spans
    ]


def write_protobuf(spans: Iterable[Span], service: str) -> bytes:
    """An export of these spans. Raises ValueError for ids that are not hexadecimal."""
    export = ExportTraceServiceRequest()
    for name, own in by_service(spans, service).items():
        resource = export.resource_spans.add()
        resource.resource.attributes.extend(_raw_attributes({"service.name": name}))
        scope = resource.scope_spans.add()
        scope.scope.name = name
        scope.spans.extend(map(_raw, own))
    return bytes(export.SerializeToString())


def _service(resource: trace_pb2.ResourceSpans) -> str:
    return next((_text(raw.value) for raw in resource.resource.attributes if raw.key == "service.name"), "")


def _span(raw: trace_pb2.Span, service: str) -> Span:
    attributes = _typed(raw.attributes)
    if len(raw.events) > MOST_EVENTS or any(event.time_unix_nano > LAST_NS for event in raw.events):
        raise ValueError(f"more than {MOST_EVENTS} events, or one out of all time")
    return checked(
        Span(
            trace_id=raw.trace_id.hex(),
            span_id=raw.span_id.hex(),
            parent_id=raw.parent_span_id.hex(),
            name=raw.name,
            start_ns=raw.start_time_unix_nano,
            end_ns=raw.end_time_unix_nano,
            attributes=attributes.text,
            error=(raw.status.message or FAILED) if raw.status.code == ERROR else "",
            kind=raw.kind,
            events=tuple(
                Event(event.name, event.time_unix_nano, _typed(event.attributes).text) for event in raw.events
            ),
            service=service,
            types=attributes.types,
        )
    )


def _typed(raw: Sequence[KeyValue]) -> Typed:
    if len(raw) > MOST_ATTRIBUTES:
        raise ValueError(f"more than {MOST_ATTRIBUTES} attributes")
    text: dict[str, str] = {}
    types: dict[str, str] = {}
    for entry in raw:
        text[entry.key] = _text(entry.value)
        kind = _NUMBERS.get(entry.value.WhichOneof("value") or "")
        if kind is not None:
            types[entry.key] = kind
    return Typed(text, types)


def _text(value: AnyValue) -> str:
    plain = _plain(value, DEEPEST)
    if isinstance(plain, str):
        return plain
    return repr(plain) if isinstance(plain, float) else orjson.dumps(plain).decode()


def _plain(value: AnyValue, depth: int) -> Any:
    if depth == 0:
        raise ValueError(f"a value has more than {DEEPEST} levels")
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_plain(entry, depth - 1) for entry in value.array_value.values]
    if kind == "kvlist_value":
        return {entry.key: _plain(entry.value, depth - 1) for entry in value.kvlist_value.values}
    if kind == "bytes_value":
        return value.bytes_value.hex()
    return "" if kind is None else getattr(value, kind)


def _raw(span: Span) -> trace_pb2.Span:
    raw = trace_pb2.Span(
        trace_id=bytes.fromhex(span.trace_id),
        span_id=bytes.fromhex(span.span_id),
        parent_span_id=bytes.fromhex(span.parent_id),
        name=span.name,
        kind=span.kind,  # type: ignore[arg-type]
        start_time_unix_nano=span.start_ns,
        end_time_unix_nano=span.end_ns,
        attributes=_raw_attributes(span.attributes, span.types),
        events=[
            trace_pb2.Span.Event(
                name=event.name, time_unix_nano=event.at_ns, attributes=_raw_attributes(event.attributes)
            )
            for event in span.events
        ],
    )
    if span.error:
        raw.status.code = trace_pb2.Status.STATUS_CODE_ERROR
        raw.status.message = span.error
    return raw


def _raw_attributes(attributes: Mapping[str, str], types: Mapping[str, str] = _NONE) -> list[KeyValue]:
    return [KeyValue(key=key, value=_raw_value(types.get(key), text)) for key, text in attributes.items()]


def _raw_value(kind: str | None, text: str) -> AnyValue:
    if kind == "boolValue":
        return AnyValue(bool_value=text == "true")
    if kind == "doubleValue":
        return AnyValue(double_value=float(text))
    return AnyValue(int_value=int(text)) if kind == "intValue" else AnyValue(string_value=text)
