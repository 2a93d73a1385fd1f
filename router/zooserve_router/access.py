"""What the access log is told of a request: how it went, in words that are all our own."""

import time
from collections.abc import MutableMapping
from typing import Any

from starlette.routing import BaseRoute, Match

from zooserve_observability.access_log import AccessLine
from zooserve_observability.metrics import UNKNOWN_MODEL
from zooserve_router.context import Record
from zooserve_router.reasons import reason_of

__all__ = ["UNKNOWN_ROUTE", "access_line", "method_of", "route_of"]

UNKNOWN_ROUTE = "unknown"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_FIRST_TOKEN = "first_token"  # noqa: S105 - a phase

Scope = MutableMapping[str, Any]


def access_line(
    scope: Scope,
    record: Record,
    *,
    request_id: str,
    trace_id: str,
    key_id: str,
    status: int,
    duration_s: float,
    pid: int,
) -> AccessLine:
    """The line of a request that has ended now."""
    model, error = record.model, record.error
    phases = {name: _ms(spent_s) for name, spent_s in record.phases_s.items() if name != _FIRST_TOKEN}
    first_s = record.phases_s.get(_FIRST_TOKEN)
    return AccessLine(
        ended_s=time.time(),
        request_id=request_id,
        trace_id=trace_id or None,
        key_id=key_id,
        method=method_of(scope),
        route=route_of(scope),
        status=status or None,
        outcome=record.outcome,
        error=None if error is None else reason_of(error),
        failed_stage=None if error is None or error.failed is None else error.failed.label,
        model=_model_of(record),
        version=None if model is None else str(model.version),
        slo_class=None if model is None else record.slo_class,
        input_tokens=None if model is None else record.input_tokens,
        output_tokens=None if model is None or model.task != "chat" else record.output_tokens,
        cached_tokens=record.cached_tokens,
        reasoning_tokens=record.reasoning_tokens,
        duration_ms=_ms(duration_s),
        time_to_first_token_ms=None if first_s is None else _ms(first_s),
        phases_ms=phases or None,
        bytes_in=record.bytes_in,
        bytes_out=record.bytes_out,
        pid=pid,
    )


def method_of(scope: Scope) -> str:
    """HTTP's method, or `other`: clients may make up their own."""
    return scope["method"] if scope["method"] in _METHODS else "other"


def route_of(scope: Scope) -> str:
    """The path as the router declares it, `/v1/models/{name:path}`; looked up once where nobody has noted it."""
    if scope.get("route") is None:
        scope["route"] = _found(scope)
    return str(getattr(scope["route"], "path", UNKNOWN_ROUTE))


def _found(scope: Scope) -> BaseRoute | None:
    routes = getattr(scope.get("app"), "routes", ())
    return next((route for route in routes if route.matches(scope)[0] is not Match.NONE), None)


def _model_of(record: Record) -> str | None:
    if record.model is not None:
        return record.model.name
    return None if record.outcome == "ok" else UNKNOWN_MODEL  # health and lists have none


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
