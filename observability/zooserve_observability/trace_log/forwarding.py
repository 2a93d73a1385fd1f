"""Kept traces on their way to an OTLP/HTTP collector: whole, in a bounded queue, tried again where that may help.

Which answers are worth a second try is OTLP's own rule: 429, 502, 503 and 504, and nobody there at all.
"""

import asyncio
import logging
import re
import ssl
import threading
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import unquote

import httpx
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from zooserve.errors import SetupError
from zooserve_observability.once_a_minute import OnceAMinute
from zooserve_observability.span_protobuf import write_protobuf
from zooserve_observability.trace_log.portions import unpacked
from zooserve_observability.trace_log.store import Settled
from zooserve_observability.trace_metrics import TraceMetrics

__all__ = ["Forwarding", "headers_from"]

_MOST_BYTES = 8 * 2**20
"""Of traces that wait, packed: some 1,600 requests of three stages."""
_AT_ONCE_BYTES = 2**19
_EVERY_S = 0.25
_PAUSES_S = (1.0, 2.0, 4.0)
_LONGEST_PAUSE_S = 30.0
_TIMEOUT_S = 10.0
_STOP_S = 2.0
_ANSWER_BYTES = 64 * 2**10
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A header's name, as HTTP has it."""
_RETRIED = frozenset({429, 502, 503, 504})
_log = logging.getLogger("zooserve.traces")


class _Refused(Exception):
    """The collector does not take this; the message says why."""


class _TryAgain(Exception):
    """The collector may take this later."""

    def __init__(self, why: str, after_s: float = 0.0) -> None:
        super().__init__(why)
        self.after_s = after_s


class Forwarding:
    """One collector's queue."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        metrics: TraceMetrics,
        most_bytes: int = _MOST_BYTES,
        pauses_s: tuple[float, ...] = _PAUSES_S,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self._url = url
        self._shown = httpx.URL(url).copy_with(username=None, password=None)
        self._headers = {**headers, "content-type": "application/x-protobuf"}
        self._metrics = metrics
        metrics.expects("forward")
        self._most_bytes = most_bytes
        self._pauses_s = pauses_s
        self._timeout_s = timeout_s
        self._waiting: deque[Settled] = deque()
        self._bytes = 0
        self._lock = threading.Lock()
        self._warn = OnceAMinute(_log)

    def put(self, trace: Settled) -> None:
        """Take a trace, from any thread, or count it as dropped where too much waits."""
        with self._lock:
            taken = self._bytes + trace.size_bytes <= self._most_bytes
            if taken:
                self._waiting.append(trace)
                self._bytes += trace.size_bytes
        if not taken:
            self._metrics.dropped("forward", "queue_full", trace.spans)
            self._warn("more traces wait for the collector at %s than may: new ones are dropped", self._shown)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Forward for the block, and at its end once more what waits."""
        # No proxy and no .netrc of the environment: the address and the headers are what the settings say. Certificates
        # are the system's, or those of SSL_CERT_FILE.
        limits, certificates = httpx.Limits(max_connections=1), ssl.create_default_context()
        async with httpx.AsyncClient(trust_env=False, limits=limits, verify=certificates) as http:
            forwarding = asyncio.create_task(self._forward_for_ever(http))
            try:
                yield
            finally:
                forwarding.cancel()
                await asyncio.gather(forwarding, return_exceptions=True)
                await self._forward_the_rest(http)

    async def _forward_for_ever(self, http: httpx.AsyncClient) -> None:
        while True:
            await asyncio.sleep(_EVERY_S)
            while batch := self._batch():
                try:
                    await self._deliver(http, batch)
                except asyncio.CancelledError:
                    self._put_back(batch)  # the end has a try of its own; a collector knows spans by their ids
                    raise

    async def _forward_the_rest(self, http: httpx.AsyncClient) -> None:
        try:
            async with asyncio.timeout(_STOP_S):
                while batch := self._batch():
                    await self._deliver(http, batch)
        except TimeoutError:
            self._lose(batch, "the platform ends")
        while batch := self._batch():
            self._lose(batch, "the platform ends")

    def _batch(self) -> list[Settled]:
        batch: list[Settled] = []
        size = 0
        with self._lock:
            while self._waiting and (not batch or size + self._waiting[0].size_bytes <= _AT_ONCE_BYTES):
                size += self._waiting[0].size_bytes
                batch.append(self._waiting.popleft())
            self._bytes -= size
        return batch

    def _put_back(self, batch: list[Settled]) -> None:
        with self._lock:
            self._waiting.extendleft(reversed(batch))
            self._bytes += sum(trace.size_bytes for trace in batch)

    async def _deliver(self, http: httpx.AsyncClient, batch: list[Settled]) -> None:
        try:
            body = await asyncio.to_thread(_export, batch)
            rejected = await self._sent(http, body)
        except (_Refused, _TryAgain) as exc:
            self._lose(batch, str(exc))
            return
        except Exception as exc:  # whatever it was, there are more traces
            _log.debug("a batch of traces could not be sent", exc_info=True)
            self._lose(batch, f"they could not be sent ({type(exc).__name__})")
            return
        spans = sum(trace.spans for trace in batch)
        rejected = min(rejected, spans)
        self._metrics.exported("forward", spans - rejected)
        if rejected:
            self._metrics.dropped("forward", "failed", rejected)
            self._warn("the collector at %s rejected %d spans of an export", self._shown, rejected)

    def _lose(self, batch: list[Settled], why: str) -> None:
        if batch:
            self._metrics.dropped("forward", "failed", sum(trace.spans for trace in batch))
            self._warn("traces do not reach the collector at %s, and are lost to it: %s", self._shown, why)

    async def _sent(self, http: httpx.AsyncClient, body: bytes) -> int:
        """How many spans of it were rejected. Raises _Refused or, after some tries, _TryAgain."""
        for pause_s in self._pauses_s:
            try:
                return await self._tried(http, body)
            except _TryAgain as exc:
                await asyncio.sleep(max(pause_s, exc.after_s))
        return await self._tried(http, body)

    async def _tried(self, http: httpx.AsyncClient, body: bytes) -> int:
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                http.stream("POST", self._url, content=body, headers=self._headers, timeout=self._timeout_s) as answer,
            ):
                told = await _beginning(answer)
        except (httpx.TransportError, TimeoutError) as exc:
            raise _TryAgain(f"{type(exc).__name__} {exc}".strip()) from exc
        if answer.status_code in _RETRIED:
            raise _TryAgain(f"it answers {answer.status_code}", _seconds(answer.headers.get("retry-after", "")))
        if not answer.is_success:
            raise _Refused(f"it answers {answer.status_code}")
        return _rejected(told)


def headers_from(text: str) -> dict[str, str]:
    """The headers that OTEL_EXPORTER_OTLP_HEADERS names: `name=value,name=value`, URL-encoded. Raises SetupError."""
    headers = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        name, equals, value = (unquote(part.strip()) for part in entry.partition("="))
        if not equals or not _HEADER.fullmatch(name) or not value.isascii():
            raise SetupError("OTEL_EXPORTER_OTLP_HEADERS cannot be used: write name=value,name=value, URL-encoded.")
        if not value.isprintable():
            raise SetupError(f"OTEL_EXPORTER_OTLP_HEADERS cannot be used: the value of {name} has control characters.")
        headers[name.lower()] = value
    return headers


def _export(batch: list[Settled]) -> bytes:
    spans = [
        span for trace in batch for portion in trace.portions for span in unpacked(trace.trace_id, portion.body)
    ]  # fmt: skip
    return write_protobuf(spans, "zooserve")


async def _beginning(answer: httpx.Response) -> bytes:
    told = b""
    async for part in answer.aiter_raw(_ANSWER_BYTES):
        told += part
        if len(told) >= _ANSWER_BYTES:
            break
    return told


def _seconds(retry_after: str) -> float:
    return min(float(retry_after), _LONGEST_PAUSE_S) if retry_after.isdecimal() and len(retry_after) < 9 else 0.0


def _rejected(answer: bytes) -> int:
    try:
        return max(0, int(ExportTraceServiceResponse.FromString(answer).partial_success.rejected_spans))
    except DecodeError:
        return 0  # some answer in JSON, or with words
