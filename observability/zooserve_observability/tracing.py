"""The router's own spans, by OpenTelemetry's SDK: one `RequestTrace` a request, whole spans or none.

W3C Trace Context is read and written as https://www.w3.org/TR/trace-context/ says; what is malformed starts a new
trace. Baggage is not read. A request is sampled once, when it begins: what is not sampled costs no span, and nothing
that it calls gets a `traceparent`, since Triton traces whatever brings one, whatever its flags say.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import (
    INVALID_SPAN,
    NoOpTracer,
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    format_span_id,
    format_trace_id,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from zooserve.errors import FailedStage
from zooserve.settings import TracingSettings

__all__ = ["NO_TRACE", "Attributes", "RequestTrace", "Tracing", "failed", "stage_failed", "traceparent", "wall_clock"]

Attributes = Mapping[str, AttributeValue]

_READ = ("traceparent", "tracestate")
_LIMITS = SpanLimits(max_span_attributes=64, max_span_attribute_length=4096, max_events=16, max_links=4)
_NONE: Attributes = {}
_READINGS = 3
# They warn of every header that they pass over, and quote it: a caller could fill the router's log.
_TALKATIVE = ("opentelemetry.trace.span", "opentelemetry.trace.propagation.tracecontext")


class Tracing:
    """Makes the traces of one process."""

    def __init__(self, tracer: Tracer, *, keeps_content: bool = False) -> None:
        self._tracer = tracer
        self._keeps_content = keeps_content
        self._propagator = TraceContextTextMapPropagator()
        for name in _TALKATIVE:
            logging.getLogger(name).setLevel(logging.ERROR)

    @classmethod
    def by(cls, settings: TracingSettings, processor: SpanProcessor) -> "Tracing":
        """Tracing that hands every span to this processor once it has ended; none where it is off."""
        if settings.sampling == "off":
            return cls.off()
        provider = TracerProvider(
            sampler=_sampler(settings),
            resource=Resource({"service.name": "zooserve-router"}),
            span_limits=_LIMITS,
            shutdown_on_exit=False,
        )
        provider.add_span_processor(processor)
        return cls(provider.get_tracer("zooserve"), keeps_content=settings.content)

    @classmethod
    def off(cls) -> "Tracing":
        """Tracing that makes no spans."""
        return cls(NoOpTracer())

    def request(self, headers: Mapping[str, str], attributes: Attributes = _NONE) -> "RequestTrace":
        """Begin a request's trace, below the caller's span where `headers` carry one (names in lower case)."""
        carrier = {name: headers[name] for name in _READ if name in headers}
        above = self._propagator.extract(carrier, Context())
        root = self._tracer.start_span("zooserve.request", above, SpanKind.SERVER, attributes)
        return RequestTrace(self._tracer, root, keeps_content=self._keeps_content)


class RequestTrace:
    """The spans of one request, below one root that stands for the whole of it."""

    def __init__(self, tracer: Tracer, root: Span, *, keeps_content: bool = False) -> None:
        self._tracer = tracer
        self.root = root
        self.keeps_content = keeps_content and root.is_recording()
        """Whether its spans may hold what its caller sent and got."""

    @property
    def is_recorded(self) -> bool:
        """Whether its spans go anywhere."""
        return self.root.is_recording()

    @property
    def trace_id(self) -> str:
        """32 hexadecimal digits, also where the trace is not recorded; empty without any."""
        context = self.root.get_span_context()
        return format_trace_id(context.trace_id) if context.is_valid else ""

    def begin(
        self,
        name: str,
        attributes: Attributes = _NONE,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        below: Span | None = None,
        began_ns: int | None = None,
    ) -> Span:
        """A span that has begun now, or at `began_ns` of the wall clock; whoever began it ends it."""
        if not self.root.is_recording():
            return INVALID_SPAN
        above = set_span_in_context(self.root if below is None else below, Context())
        return self._tracer.start_span(name, above, kind, attributes, start_time=began_ns)

    @contextmanager
    def span(
        self,
        name: str,
        attributes: Attributes = _NONE,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        below: Span | None = None,
    ) -> Iterator[Span]:
        """A span for the block; an exception that leaves it is its error, a cancellation is none."""
        span = self.begin(name, attributes, kind=kind, below=below)
        try:
            yield span
        except Exception as exc:
            failed(span, type(exc).__name__)
            raise
        except BaseException:
            span.set_attribute("zooserve.outcome", "cancelled")
            raise
        finally:
            span.end()

    def add(
        self,
        name: str,
        began_ns: int,
        ended_ns: int,
        attributes: Attributes = _NONE,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        below: Span | None = None,
    ) -> None:
        """A span of which everything is known already."""
        self.begin(name, attributes, kind=kind, below=below, began_ns=began_ns).end(max(began_ns, ended_ns))


def failed(span: Span, error: str, message: str = "") -> None:
    """Mark a span as failed by this kind of error.

    A message may quote what the caller sent: give one only where content is kept.
    """
    span.set_attribute("error.type", error)
    span.set_status(Status(StatusCode.ERROR, message or None))


def stage_failed(span: Span, stage: FailedStage) -> None:
    """Say in which stage of a pipeline the span's work failed."""
    span.set_attributes(
        {
            "zooserve.failed_stage": stage.name,
            "zooserve.failed_version": stage.version,
            "zooserve.failed_reason": stage.reason,
        }
    )


def traceparent(span: Span) -> str | None:
    """The header that makes what is called a child of this span; None where nothing shall be traced."""
    if not span.is_recording():
        return None
    context = span.get_span_context()
    return f"00-{format_trace_id(context.trace_id)}-{format_span_id(context.span_id)}-{context.trace_flags:02x}"


def wall_clock() -> Callable[[float], int]:
    """What tells moments of time.monotonic() on the wall clock: by one reading of both, so that what touches does.

    Where another thread runs between the two, the wall clock seems to be less far ahead: the best of some is taken.
    """
    ahead_ns = max(time.time_ns() - time.monotonic_ns() for _ in range(_READINGS))
    return lambda monotonic_s: ahead_ns + round(monotonic_s * 1e9)


def _sampler(settings: TracingSettings) -> Sampler:
    """Head: what the caller decided, else the ratio. Tail: everything, since what is worth keeping is not known yet."""
    return ALWAYS_ON if settings.sampling == "tail" else ParentBased(TraceIdRatioBased(settings.ratio))


NO_TRACE = RequestTrace(NoOpTracer(), INVALID_SPAN)
"""Of a request that nobody traces."""
