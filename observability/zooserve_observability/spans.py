"""Spans as OTLP/HTTP carries them in JSON: read what an exporter sends, write what the trace log tells.

`span_protobuf` reads and writes the same as protobuf.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

__all__ = ["Event", "Span", "Typed", "below", "by_service", "checked", "read_spans", "write_spans"]

MOST_ATTRIBUTES = 1024
"""Of one span or event; OpenTelemetry's own limit is 128."""
MOST_EVENTS = 1024
DEEPEST = 8
"""Lists and maps within one value."""
FAILED = "failed"
"""The error of a span that says no more than that it failed."""
ERROR = 2
_INTERNAL = 1
_TRACE_ID = re.compile("[0-9a-f]{32}")
_SPAN_ID = re.compile("[0-9a-f]{16}")
LAST_NS = 2**63 - 1
_KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
_NUMBERS = frozenset({"intValue", "doubleValue", "boolValue"})
_NONE: Mapping[str, str] = {}


class Event(NamedTuple):
    """A moment within a span. A tuple: Triton's spans have four each."""

    name: str
    at_ns: int
    attributes: Mapping[str, str] = _NONE


@dataclass(frozen=True, slots=True)
class Span:
    """One step of one request. Attributes are kept as text; `error` is empty where nothing failed."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, str] = field(default_factory=dict)
    error: str = ""
    kind: int = _INTERNAL
    """As OTLP numbers them: 1 internal, 2 server, 3 client."""
    events: Sequence[Event] = ()
    service: str = ""
    """Whose span it is: the `service.name` of its resource."""
    types: Mapping[str, str] = field(default_factory=dict)
    """Of attributes that are no text: how OTLP calls their type, as `intValue`."""

    @property
    def duration_ns(self) -> int:
        """Never negative: clocks may step back."""
        return max(0, self.end_ns - self.start_ns)


class Typed(NamedTuple):
    """Attributes as text, and the types of those that are none."""

    text: Mapping[str, str]
    types: Mapping[str, str]


_UNTOLD = Typed(_NONE, _NONE)


def read_spans(body: bytes, trace_id: str = "") -> list[Span]:
    """The spans in an export, or those of one trace alone. Raises ValueError when it is none."""
    try:
        exported = orjson.loads(body)
        return [
            _span(raw, service)
            for resource in exported["resourceSpans"]
            for service in (_service(resource),)
            for scope in resource["scopeSpans"]
            for raw in scope["spans"]
            if not trace_id or raw["traceId"].lower() == trace_id
        ]
    except (KeyError, TypeError, AttributeError, OverflowError, orjson.JSONDecodeError) as exc:
        raise ValueError(f"not an OTLP export of spans: {exc!r}") from exc


def write_spans(spans: Iterable[Span], service: str) -> bytes:
    """An export of these spans; of those that name no service of their own it is this one."""
    resources = [
        {
            "resource": {"attributes": _raw_attributes({"service.name": name})},
            "scopeSpans": [{"scope": {"name": name}, "spans": [_raw(span) for span in own]}],
        }
        for name, own in by_service(spans, service).items()
    ]
    return orjson.dumps({"resourceSpans": resources})


def by_service(spans: Iterable[Span], service: str) -> dict[str, list[Span]]:
    """The spans by the service whose they are, `service` where they do not say."""
    found: dict[str, list[Span]] = {service: []}
    for span in spans:
        found.setdefault(span.service or service, []).append(span)
    return {name: own for name, own in found.items() if own or len(found) == 1}


def below(spans: Sequence[Span], span_id: str) -> list[Span]:
    """The spans under this one, at any depth."""
    children: dict[str, list[Span]] = {}
    for span in spans:
        children.setdefault(span.parent_id, []).append(span)
    return list(_descendants(children, span_id))


def _descendants(children: dict[str, list[Span]], span_id: str) -> Iterator[Span]:
    waiting = children.pop(span_id, [])[::-1]
    while waiting:
        span = waiting.pop()
        yield span
        waiting += children.pop(span.span_id, [])[::-1]  # popped: a circle of parents ends


def checked(span: Span) -> Span:
    """The same span. Raises ValueError for one that no exporter sends."""
    if not _TRACE_ID.fullmatch(span.trace_id):
        raise ValueError("a trace id has 32 hexadecimal digits")
    if not _SPAN_ID.fullmatch(span.span_id) or not (span.parent_id == "" or _SPAN_ID.fullmatch(span.parent_id)):
        raise ValueError("a span id has 16 hexadecimal digits")
    if not 0 <= span.start_ns <= LAST_NS or not 0 <= span.end_ns <= LAST_NS:
        raise ValueError("a time is out of range")
    return span


def _service(resource: Mapping[str, Any]) -> str:
    attributes = (resource.get("resource") or {}).get("attributes", ())
    return next((_text(raw["value"]) for raw in attributes if raw["key"] == "service.name"), "")


def _span(raw: Mapping[str, Any], service: str) -> Span:
    status = raw.get("status") or {}
    failed = status.get("code") in (ERROR, "STATUS_CODE_ERROR")
    attributes = _typed(raw.get("attributes", ()))
    return checked(
        Span(
            trace_id=raw["traceId"].lower(),
            span_id=raw["spanId"].lower(),
            parent_id=raw.get("parentSpanId", "").lower(),
            name=_string(raw["name"]),
            start_ns=int(raw["startTimeUnixNano"]),
            end_ns=int(raw["endTimeUnixNano"]),
            attributes=attributes.text,
            error=_string(status.get("message") or FAILED) if failed else "",
            kind=_kind(raw.get("kind", _INTERNAL)),
            events=tuple([_event(event) for event in _bounded(raw.get("events", ()), MOST_EVENTS)]),
            service=service,
            types=attributes.types,
        )
    )


def _event(raw: Mapping[str, Any]) -> Event:
    at_ns = int(raw["timeUnixNano"])
    if not 0 <= at_ns <= LAST_NS:
        raise ValueError("a time is out of range")
    return Event(_string(raw["name"]), at_ns, _typed(raw.get("attributes", ())).text)


def _kind(raw: int | str) -> int:
    kind = _KINDS.index(raw.removeprefix("SPAN_KIND_")) if isinstance(raw, str) else raw
    return kind if kind in range(len(_KINDS)) else _INTERNAL


def _typed(raw: Any) -> Typed:
    if not raw:
        return _UNTOLD
    text: dict[str, str] = {}
    types: dict[str, str] = {}
    for entry in _bounded(raw, MOST_ATTRIBUTES):
        key, value = entry["key"], entry["value"]
        told = value.get("stringValue")
        if isinstance(told, str):  # nearly all of them
            text[_string(key)] = told
            continue
        text[_string(key)] = _text(value)
        types |= {key: kind for kind in value.keys() & _NUMBERS}  # noqa: B035 (one, or none)
    return Typed(text, types)


def _bounded(raw: Any, most: int) -> Any:
    if not isinstance(raw, list | tuple) or len(raw) > most:
        raise ValueError(f"more than {most} attributes or events, or no list of them")
    return raw


def _string(raw: Any) -> str:
    if not isinstance(raw, str):
        raise TypeError(f"no text: {type(raw).__name__}")
    return raw


def _text(value: Mapping[str, Any]) -> str:
    """A value of OTLP's as text: what is text as it is, numbers as they are written, the rest as JSON."""
    plain = _plain(value, DEEPEST)
    if isinstance(plain, str):
        return plain
    return repr(plain) if isinstance(plain, float) else orjson.dumps(plain).decode()


def _plain(value: Mapping[str, Any], depth: int) -> Any:
    if depth == 0:
        raise ValueError(f"a value has more than {DEEPEST} levels")
    kind, raw = next(iter(value.items()), ("stringValue", ""))
    return _READERS[kind](raw, depth - 1)


def _boolean(raw: Any, depth: int) -> bool:
    if not isinstance(raw, bool):
        raise TypeError(f"no boolean: {type(raw).__name__}")
    return raw


def _double(raw: Any, depth: int) -> float | str:
    number = float(raw)
    return number if math.isfinite(number) else repr(number)


_Reader = Callable[[Any, int], Any]
_READERS: Mapping[str, _Reader] = {
    "stringValue": lambda raw, depth: _string(raw),
    "bytesValue": lambda raw, depth: _string(raw),
    "boolValue": _boolean,
    "intValue": lambda raw, depth: int(raw),
    "doubleValue": _double,
    "arrayValue": lambda raw, depth: [_plain(value, depth) for value in raw.get("values", ())],
    "kvlistValue": lambda raw, depth: {
        _string(entry["key"]): _plain(entry["value"], depth) for entry in raw.get("values", ())
    },
}


def _raw(span: Span) -> dict[str, Any]:
    raw: dict[str, Any] = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "parentSpanId": span.parent_id,
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns),
        "attributes": _raw_attributes(span.attributes, span.types),
    }
    if span.events:
        raw["events"] = [_raw_event(event) for event in span.events]
    if span.error:
        raw["status"] = {"code": ERROR, "message": span.error}
    return raw


def _raw_event(event: Event) -> dict[str, Any]:
    return {"name": event.name, "timeUnixNano": str(event.at_ns), "attributes": _raw_attributes(event.attributes)}


def _raw_attributes(attributes: Mapping[str, str], types: Mapping[str, str] = _NONE) -> list[dict[str, Any]]:
    return [{"key": key, "value": _raw_value(types.get(key), text)} for key, text in attributes.items()]


def _raw_value(kind: str | None, text: str) -> dict[str, Any]:
    if kind == "boolValue":
        return {kind: text == "true"}
    if kind == "doubleValue":
        return {kind: float(text) if math.isfinite(float(text)) else text}
    return {kind or "stringValue": text}
