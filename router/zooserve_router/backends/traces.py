"""The trace log: asked for the spans of requests that failed, which tell the stage.

Only a failure that nothing else explains waits for it: Triton exports every 100 ms, and after a second the request is
answered without.
"""

import asyncio
from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from zooserve_observability.spans import Span, below, read_spans
from zooserve_router.backends.wire import ConnectionPool

__all__ = ["TraceSource", "TracesSilent"]

_PATH = "/v1/traces"
_WITHIN_S = 1.0
_ANSWER_S = 0.25
"""The log answers at once when its wait is over."""
_CLOCKS_DIFFER_NS = 1_000_000_000
"""By less, where the log is on another machine."""
_ENSEMBLE_CALL = "triton.trace_parent_id"
_AT_ONCE = 8
"""Under a burst of failures more would only keep the log from reading what Triton exports."""


class TracesSilent(Exception):
    """The log has nothing to say; the message says why."""


class TraceSource:
    """One trace log's HTTP endpoint."""

    def __init__(self, pool: ConnectionPool, within_s: float = _WITHIN_S) -> None:
        self._pool = pool
        self._within_s = within_s
        self._asking = 0

    async def spans_of(self, trace_id: str, span_id: str, name: str, began_ns: int) -> Sequence[Span]:
        """The spans of what was called in this span, once that called `name` has ended. Raises TracesSilent."""
        if self._asking >= _AT_ONCE:
            raise TracesSilent("too many requests failed at once to ask the trace log for each")
        self._asking += 1
        try:
            query: dict[str, str | int] = {
                "below": span_id,
                "name": name,
                "within_ms": round(self._within_s * 1000),
            }
            # A trace may be as large as its caller makes it: only what came since is looked through.
            since: dict[str, str | int] = {"since_ns": began_ns - _CLOCKS_DIFFER_NS}
            spans = await self._asked(trace_id, since | query)
            if any(span.name == name for span in spans):
                return spans
            return self._strays(await self._asked(trace_id, since), began_ns)
        finally:
            self._asking -= 1

    def _strays(self, spans: Sequence[Span], began_ns: int) -> Sequence[Span]:
        """The steps of an ensemble whose own span Triton 2.51 never exports: one branch failed, others still ran."""
        known = {span.span_id for span in spans}
        steps = [span for span in spans if _ENSEMBLE_CALL in span.attributes and span.start_ns >= began_ns]
        strays = [span for span in steps if span.parent_id not in known]
        if len({span.attributes[_ENSEMBLE_CALL] for span in strays}) != 1:
            raise TracesSilent(f"its trace did not arrive within {self._within_s:g} s")
        return [*strays, *(span for stray in strays for span in below(spans, stray.span_id))]

    async def _asked(self, trace_id: str, query: Mapping[str, str | int]) -> list[Span]:
        try:
            async with asyncio.timeout(self._within_s + _ANSWER_S):
                answer = await self._pool.exchange("GET", f"{_PATH}/{trace_id}?{urlencode(query)}", {})
        except (OSError, TimeoutError) as exc:
            raise TracesSilent("the trace log does not answer") from exc
        if answer.status != 200:
            raise TracesSilent(f"the trace log answers {answer.status}")
        try:
            return read_spans(answer.body, trace_id)
        except ValueError as exc:
            raise TracesSilent("what answers there is no trace log") from exc
