"""W3C trace contexts: the span of one exchange with the zoo, in its caller's trace or one of its own."""

import secrets
from dataclasses import dataclass

__all__ = ["SpanContext", "child_of"]


@dataclass(frozen=True)
class SpanContext:
    """A span's place: its trace, its own id and its parent's, which is empty at the root of a trace."""

    trace_id: str
    span_id: str
    parent_id: str = ""

    @property
    def traceparent(self) -> str:
        """The header that makes what is called a child of this span."""
        return f"00-{self.trace_id}-{self.span_id}-01"


def child_of(traceparent: str | None) -> SpanContext:
    """A new span below the caller's, whose header was checked before; without one, the first of a new trace."""
    if traceparent is None:
        return SpanContext(secrets.token_hex(16), secrets.token_hex(8))
    _, trace_id, parent_id, _ = traceparent.split("-")
    return SpanContext(trace_id, secrets.token_hex(8), parent_id)
