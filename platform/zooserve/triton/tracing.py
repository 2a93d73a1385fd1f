"""Triton's own spans: the arguments that make a server export them."""

__all__ = ["trace_arguments"]

# Spans then arrive 45 to 95 ms after the answer, a few hundred in one export; Triton's own default is 5 s.
_EXPORT_EVERY_MS = 100
# Whoever brings a trace context is traced whatever the rate, and nobody else: probes and strangers cost nothing.
_RATE = 1_000_000_000


def trace_arguments(url: str) -> tuple[str, ...]:
    """Export the spans of every request that brings a `traceparent` to this OTLP/HTTP address, as JSON."""
    return (
        "--trace-config=mode=opentelemetry",
        "--trace-config=level=TIMESTAMPS",
        f"--trace-config=rate={_RATE}",
        f"--trace-config=opentelemetry,url={url}",
        "--trace-config=opentelemetry,resource=service.name=triton",
        f"--trace-config=opentelemetry,bsp_schedule_delay={_EXPORT_EVERY_MS}",
    )
