"""What one export brought of one trace: its spans packed, since nearly all of them are never looked at again."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import orjson

from zooserve_observability.spans import Event, Span

__all__ = ["ROOT", "Portion", "Root", "packed", "portions_of", "unpacked"]

ROOT = "zooserve.request"
"""The router's span that stands for a whole request."""
_KEPT_TEXT = 200


@dataclass(frozen=True, slots=True)
class Root:
    """What a request's root span says of it."""

    span_id: str
    request_id: str
    model: str
    version: str
    slo_class: str
    outcome: str
    route: str
    began_ns: int
    duration_ns: int
    first_token_ns: int | None
    """From the request to its first token; None where it was to have none, or got none."""
    failed: bool


@dataclass(frozen=True, slots=True, eq=False)
class Portion:
    """The spans of one trace from one export."""

    trace_id: str
    body: bytes
    spans: int
    roots: tuple[Root, ...]
    failed: bool
    """Whether any of its spans failed."""
    began_ns: int
    ended_ns: int
    received_ns: int


def portions_of(spans: Iterable[Span], received_ns: int | None = None) -> list[Portion]:
    """An export's spans by their traces."""
    received_ns = time.time_ns() if received_ns is None else received_ns
    by_trace: dict[str, list[Span]] = {}
    for span in spans:
        by_trace.setdefault(span.trace_id, []).append(span)
    return [_portion(trace_id, own, received_ns) for trace_id, own in by_trace.items()]


def _portion(trace_id: str, spans: Sequence[Span], received_ns: int) -> Portion:
    return Portion(
        trace_id=trace_id,
        body=packed(spans),
        spans=len(spans),
        roots=tuple(_root(span) for span in spans if span.name == ROOT),
        failed=any(span.error for span in spans),
        began_ns=min(span.start_ns for span in spans),
        ended_ns=max(span.end_ns for span in spans),
        received_ns=received_ns,
    )


def _root(span: Span) -> Root:
    def said(name: str) -> str:
        return span.attributes.get(f"zooserve.{name}", "")[:_KEPT_TEXT]

    return Root(
        span_id=span.span_id,
        request_id=said("request_id"),
        model=said("model"),
        version=said("model_version"),
        slo_class=said("slo_class"),
        outcome=said("outcome"),
        route=span.attributes.get("http.route", "")[:_KEPT_TEXT],
        began_ns=span.start_ns,
        duration_ns=span.duration_ns,
        first_token_ns=_nanoseconds(said("time_to_first_token_s")),
        failed=bool(span.error),
    )


def _nanoseconds(seconds: str) -> int | None:
    try:
        return max(0, min(round(float(seconds) * 1e9), 2**62))
    except (ValueError, OverflowError):
        return None


def packed(spans: Iterable[Span]) -> bytes:
    """Spans of one trace as bytes."""
    return orjson.dumps([_row(span) for span in spans])


def unpacked(trace_id: str, body: bytes) -> list[Span]:
    """The spans again."""
    return [_span(trace_id, *row) for row in orjson.loads(body)]


def _row(span: Span) -> tuple[object, ...]:
    events = [(event.name, event.at_ns, event.attributes) for event in span.events]
    return (
        span.span_id, span.parent_id, span.name, span.start_ns, span.end_ns, span.attributes, span.error, span.kind,
        events, span.service, span.types,
    )  # fmt: skip


def _span(
    trace_id: str, span_id: str, parent_id: str, name: str, start_ns: int, end_ns: int, attributes: dict[str, str],
    error: str, kind: int, events: list[tuple[str, int, dict[str, str]]], service: str, types: dict[str, str],
) -> Span:  # fmt: skip
    return Span(
        trace_id, span_id, parent_id, name, start_ns, end_ns, attributes, error, kind,
        tuple(Event(*event) for event in events), service, types,
    )  # fmt: skip
