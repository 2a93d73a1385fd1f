"""The trace context of the application goes along with a request; OpenTelemetry is never loaded for it."""

import subprocess
import sys

from opentelemetry import baggage, context, trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from zooserve.sdk.propagation import trace_headers

SPAN = SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def test_the_current_span_is_the_parent_that_the_request_names() -> None:
    with trace.use_span(NonRecordingSpan(SPAN)):
        assert trace_headers() == {"traceparent": f"00-{0xABC:032x}-{0xDEF:016x}-01"}


def test_baggage_goes_along() -> None:
    token = context.attach(baggage.set_baggage("tenant", "one"))
    try:
        assert trace_headers() == {"baggage": "tenant=one"}
    finally:
        context.detach(token)


def test_without_a_span_nothing_is_sent() -> None:
    assert trace_headers() == {}


def test_opentelemetry_is_not_loaded_where_the_application_does_not_use_it() -> None:
    code = (
        "import sys; from zooserve.sdk.propagation import trace_headers; assert trace_headers() == {};"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
