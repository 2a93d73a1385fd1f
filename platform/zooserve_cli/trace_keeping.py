"""The trace log of a platform, in the supervisor's process: its address, its thread, and the way to a collector."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from zooserve.errors import PortTaken
from zooserve.settings import Settings, secret
from zooserve_observability.trace_log import TraceLog
from zooserve_observability.trace_log.decision import Policy
from zooserve_observability.trace_log.forwarding import Forwarding, headers_from
from zooserve_observability.trace_log.keeping import TraceKeeping
from zooserve_observability.trace_log.store import TraceStore
from zooserve_observability.trace_metrics import TraceMetrics
from zooserve_observability.trace_receiver import TraceReceiver

__all__ = ["collector_headers", "traces_kept"]

_HEADERS = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
"""The first that is set counts, as for every exporter of OpenTelemetry's."""


@asynccontextmanager
async def traces_kept(settings: Settings, file: Path, metrics: TraceMetrics) -> AsyncIterator[None]:
    """Take for the block what the router and the zoo's Triton export: to look failures up, to draw, to hand on.

    Raises PortTaken, and SetupError for headers that cannot be read.
    """
    log_settings = settings.trace_log
    if log_settings.port is None:
        yield
        return
    metrics.log_may_take(log_settings.max_bytes, log_settings.disk_bytes)
    async with AsyncExitStack() as stack:
        forwarding = _forwarding(settings, metrics)
        if forwarding is not None:
            await stack.enter_async_context(forwarding.running())
        keeping = TraceKeeping(
            TraceStore(file, log_settings.disk_bytes),
            _policy(settings),
            metrics,
            hand_on=(lambda trace: None) if forwarding is None else forwarding.put,
        )
        stack.enter_context(keeping.running())
        log = TraceLog(log_settings.max_bytes, also=keeping.put)
        keeping.memory_bytes = lambda: log.size_bytes
        try:
            await stack.enter_async_context(TraceReceiver(log, log_settings.host, log_settings.port).serving())
        except OSError as exc:  # it was free when the ports were chosen
            raise PortTaken(
                f"The trace log cannot listen on port {log_settings.port} of {log_settings.host} ({exc.strerror}). "
                "Start again, or choose another port with ZOOSERVE_TRACE_LOG__PORT."
            ) from exc
        yield


def _policy(settings: Settings) -> Policy:
    """Under `head` the router has chosen already: all that comes is kept."""
    tracing = settings.tracing
    return Policy(tracing.ratio if tracing.sampling == "tail" else 1.0, tracing.slow_s)


def _forwarding(settings: Settings, metrics: TraceMetrics) -> Forwarding | None:
    if not settings.tracing.url:
        return None
    return Forwarding(settings.tracing.url, collector_headers(), metrics)


def collector_headers() -> dict[str, str]:
    """What a collector gets beside the spans, as the environment says. Raises SetupError where that cannot be read."""
    return headers_from(next(filter(None, map(secret, _HEADERS)), ""))
