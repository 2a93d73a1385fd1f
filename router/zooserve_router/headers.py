"""What the request's headers ask for: its id, class, deadline and trace, read once and checked."""

import math
import re
import secrets
from collections.abc import Iterable, Mapping

from zooserve.catalogue import SloClass
from zooserve.errors import BadInput
from zooserve_observability.tracing import NO_TRACE, RequestTrace
from zooserve_router.context import ANONYMOUS, Deadline, Record, RequestContext

__all__ = ["KnownHeaders", "context_from", "known_headers", "request_id_from", "trace_headers"]

KnownHeaders = Mapping[bytes, bytes]

_READ = frozenset(
    {b"x-request-id", b"x-zooserve-class", b"x-zooserve-embedding-space", b"x-request-timeout-ms",
     b"x-stainless-read-timeout", b"traceparent", b"tracestate", b"content-length", b"authorization", b"x-api-key"}
)  # fmt: skip
_TRACE = (b"traceparent", b"tracestate")
_LONGEST_TRACE = 1024
"""Of a joined one: twice what W3C asks to be passed on."""
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_CLASSES: dict[bytes, SloClass] = {b"interactive": "interactive", b"bulk": "bulk"}


def known_headers(raw: Iterable[tuple[bytes, bytes]]) -> KnownHeaders:
    """The headers that the router itself reads, by name; the first of several wins.

    A trace context's are joined, as W3C has it: that makes one `tracestate`, and no `traceparent`, which is sent once.
    """
    found: dict[bytes, bytes] = {}
    for name, value in raw:
        if name in _TRACE and name in found:
            if len(found[name]) + len(value) < _LONGEST_TRACE:
                found[name] += b"," + value
        elif name in _READ:
            found.setdefault(name, value)
    return found


def request_id_from(headers: KnownHeaders) -> str:
    """The caller's own id if it is one we may print in logs and headers, else a fresh one."""
    given = headers.get(b"x-request-id", b"")
    if _REQUEST_ID.fullmatch(given):
        return given.decode("ascii")
    return f"req_{secrets.token_hex(12)}"


def trace_headers(headers: KnownHeaders) -> Mapping[str, str]:
    """The caller's trace context as it came; whoever reads it passes over what is malformed."""
    return {name.decode(): headers[name].decode("latin-1") for name in _TRACE if name in headers}


def context_from(
    headers: KnownHeaders,
    request_id: str,
    record: Record,
    max_deadline_s: float,
    trace: RequestTrace = NO_TRACE,
    caller: str = ANONYMOUS,
) -> RequestContext:
    """The request's context. Raises BadInput for a class or a timeout that cannot be understood."""
    return RequestContext(
        request_id=request_id,
        deadline=Deadline.after(min(_timeout_s(headers), max_deadline_s)),
        slo_class=_class_from(headers),
        space=_space_from(headers),
        trace=trace,
        caller=caller,
        record=record,
    )


def _class_from(headers: KnownHeaders) -> SloClass | None:
    given = headers.get(b"x-zooserve-class")
    if given is None:
        return None
    if given.lower() not in _CLASSES:
        raise BadInput(
            f"x-zooserve-class is {_printable(given)}; it must be `interactive` or `bulk`, or be left out.",
            param="x-zooserve-class",
        )
    return _CLASSES[given.lower()]


def _space_from(headers: KnownHeaders) -> str | None:
    """As it came: any value but the model's own is told back to the caller as another space."""
    given = headers.get(b"x-zooserve-embedding-space")
    return None if given is None else given.decode("latin-1")


def _timeout_s(headers: KnownHeaders) -> float:
    given = headers.get(b"x-request-timeout-ms")
    if given is not None:
        return _positive("x-request-timeout-ms", given, "milliseconds") / 1000
    given = headers.get(b"x-stainless-read-timeout")  # openai-python sends its own read timeout, in seconds
    if given is not None:
        return _positive("x-stainless-read-timeout", given, "seconds")
    return math.inf


def _positive(name: str, value: bytes, unit: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not number > 0:
        raise BadInput(f"{name} is {_printable(value)}; it must be a number of {unit} above 0.", param=name)
    return number


def _printable(value: bytes) -> str:
    return repr(value[:64].decode("latin-1"))
