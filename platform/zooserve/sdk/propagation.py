"""W3C trace context on every request, where the application uses OpenTelemetry."""

import sys

__all__ = ["trace_headers"]


def trace_headers() -> dict[str, str]:
    """`traceparent`, and whatever else the application's propagator writes for the current context.

    Empty where there is no span, and where nothing has loaded OpenTelemetry: without it no span can be current, so
    this never loads it by itself.
    """
    if "opentelemetry.context" not in sys.modules:
        return {}
    from opentelemetry.propagate import inject

    headers: dict[str, str] = {}
    inject(headers)
    return headers
