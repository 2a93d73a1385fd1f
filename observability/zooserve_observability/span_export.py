"""Spans on their way out of a process: taken at once, exported by a thread, dropped and counted when too many wait.

OpenTelemetry's BatchSpanProcessor does the same without telling how many it dropped.
"""

import logging
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import requests
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from zooserve_observability.once_a_minute import OnceAMinute
from zooserve_observability.trace_metrics import Exporter, TraceMetrics

__all__ = ["SpanExport", "otlp_exporter"]

_MOST = 4096
"""Spans that wait: some 8 MB, and what 150 requests a second make in eight seconds."""
_AT_ONCE = 512
_EVERY_S = 0.2
"""Together with the server's own spans, which Triton exports every 0.1 s."""
_TIMEOUT_S = 5.0
_LAST_S = 2.0
"""For what waits when the process ends: a replica that ends has little time, and its collector may hang."""
_log = logging.getLogger(__name__)


def otlp_exporter(url: str, timeout_s: float = _TIMEOUT_S) -> SpanExporter:
    """An exporter to the OTLP/HTTP address of traces (`http://host:4318/v1/traces`), protobuf in the body.

    The limit is of all tries together, but of each wait for bytes: who answers byte by byte holds it up longer. Then
    the queue fills, and new spans are dropped.

    Of the environment OpenTelemetry's headers and certificates count. Its proxies, .netrc and compression do not: they
    are meant for other addresses than the trace log's.
    """
    # It logs every failure and every retry; SpanExport says once a minute what was lost.
    logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter").setLevel(logging.CRITICAL)
    # It warns of headers that it cannot read, and quotes them: they are secrets.
    logging.getLogger("opentelemetry.util.re").setLevel(logging.ERROR)
    session = requests.Session()
    session.trust_env = False
    return OTLPSpanExporter(endpoint=url, timeout=timeout_s, compression=Compression.NoCompression, session=session)


class SpanExport(SpanProcessor):
    """Hands sampled spans to an exporter. Whoever ends a span never waits, and memory stays bounded."""

    def __init__(
        self,
        exporter: SpanExporter,
        metrics: TraceMetrics,
        name: Exporter = "router",
        most: int = _MOST,
        last_s: float = _LAST_S,
    ) -> None:
        self._exporter = exporter
        self._metrics = metrics
        self._name: Exporter = name
        self._most = most
        self._last_s = last_s
        self._waiting: deque[ReadableSpan] = deque()
        self._warn = OnceAMinute(_log)
        self._ended = threading.Event()
        self._on_the_way = 0
        """Spans that the exporter has, and of which nothing is known yet."""
        metrics.expects(name)

    @contextmanager
    def exporting(self) -> Iterator[None]:
        """Export for the block, and at its end what still waits, as far as time allows. Before it spans are kept."""
        thread = threading.Thread(target=self._export_for_ever, name="span-export", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join(self._last_s)
            self._exporter.shutdown()
            on_the_way = self._on_the_way if thread.is_alive() else 0
            self._drop(on_the_way + len(self._taken_out(self._most)))

    def on_end(self, span: ReadableSpan) -> None:
        """Take a span, or count it as dropped where too many wait."""
        context = span.get_span_context()
        if context is None or not context.trace_flags.sampled:
            return
        if len(self._waiting) >= self._most:
            self._metrics.dropped(self._name, "queue_full", 1)
            self._warn("more than %d spans wait for their exporter: new ones are dropped", self._most)
            return
        self._waiting.append(span)

    def _export_for_ever(self) -> None:
        while not self._ended.wait(_EVERY_S):
            self._export_what_waits()
        self._export_what_waits()

    def _export_what_waits(self) -> None:
        while batch := self._taken_out(_AT_ONCE):
            if not self._is_taken(batch):
                return  # whoever takes them is ill: the rest waits for the next round

    def _taken_out(self, most: int) -> list[ReadableSpan]:
        batch: list[ReadableSpan] = []
        with suppress(IndexError):  # nothing waits any more
            while len(batch) < most:
                batch.append(self._waiting.popleft())
        return batch

    def _drop(self, left: int) -> None:
        if left:
            self._metrics.dropped(self._name, "failed", left)
            _log.warning("%d spans had not been taken when this process ended, and are lost", left)

    def _is_taken(self, batch: list[ReadableSpan]) -> bool:
        self._on_the_way = len(batch)
        try:
            taken = self._exporter.export(batch) is SpanExportResult.SUCCESS
        except Exception:  # whatever an exporter raises, the process works on
            _log.debug("the exporter of spans failed", exc_info=True)
            taken = False
        self._on_the_way = 0
        if taken:
            self._metrics.exported(self._name, len(batch))
        else:
            self._metrics.dropped(self._name, "failed", len(batch))
            self._warn("spans were not taken by whoever collects them, and are lost")
        return taken
