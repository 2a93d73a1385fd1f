"""Spans as OTLP/HTTP carries them in JSON: read what Triton exports, write what the router adds."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

__all__ = ["Span", "below", "read_spans", "trace_ids", "write_spans"]

_TRACE_ID = re.compile(rb'"traceId"\s*:\s*"([0-9a-fA-F]{32})"')
_ERROR = 2


@dataclass(frozen=True)
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


def trace_ids(body: bytes) -> set[str]:
    """The traces that an export speaks of, found without parsing it: most exports are never looked at again."""
    return {found.decode().lower() for found in set(_TRACE_ID.findall(body))}


def read_spans(body: bytes, trace_id: str) -> list[Span]:
    """The spans of one trace in an export. Raises ValueError when it is none."""
    try:
        exported = orjson.loads(body)
        return [
            _span(raw)
            for resource in exported["resourceSpans"]
            for scope in resource["scopeSpans"]
            for raw in scope["spans"]
            if raw["traceId"].lower() == trace_id
        ]
    except (KeyError, TypeError, AttributeError) as exc:
        raise ValueError(f"not an OTLP export of spans: {exc!r}") from exc


def write_spans(spans: Iterable[Span], service: str) -> bytes:
    """An export of these spans."""
    resource = {"attributes": _attributes({"service.name": service})}
    scope = {"scope": {"name": service}, "spans": [_raw(span) for span in spans]}
    return orjson.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]})


def below(spans: Sequence[Span], span_id: str) -> list[Span]:
    """The spans under this one, at any depth."""
    children: dict[str, list[Span]] = {}
    for span in spans:
        children.setdefault(span.parent_id, []).append(span)
    return list(_descendants(children, span_id))


def _descendants(children: dict[str, list[Span]], span_id: str) -> Iterator[Span]:
    for child in children.pop(span_id, ()):  # popped: a circle of parents ends
        yield child
        yield from _descendants(children, child.span_id)


def _span(raw: Mapping[str, Any]) -> Span:
    status = raw.get("status") or {}
    failed = status.get("code") in (_ERROR, "STATUS_CODE_ERROR")
    return Span(
        trace_id=raw["traceId"].lower(),
        span_id=raw["spanId"].lower(),
        parent_id=raw.get("parentSpanId", "").lower(),
        name=raw["name"],
        start_ns=int(raw["startTimeUnixNano"]),
        end_ns=int(raw["endTimeUnixNano"]),
        attributes={entry["key"]: str(next(iter(entry["value"].values()), "")) for entry in raw.get("attributes", ())},
        error=(status.get("message") or "failed") if failed else "",
    )


def _raw(span: Span) -> dict[str, Any]:
    raw: dict[str, Any] = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "parentSpanId": span.parent_id,
        "name": span.name,
        "kind": 3,
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns),
        "attributes": _attributes(span.attributes),
    }
    if span.error:
        raw["status"] = {"code": _ERROR, "message": span.error}
    return raw


def _attributes(attributes: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]
