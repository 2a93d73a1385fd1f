"""The trace log over HTTP: OTLP/HTTP in, the spans of one request out. Loopback only, one event loop.

POST /v1/traces                                            an export, as JSON (Triton's) or protobuf (the SDKs'),
                                                           which may be compressed by gzip
GET  /v1/traces/TRACE-ID[?below=SPAN-ID&name=N&within_ms=M]  an export of what is known of that trace

With since_ns=T only of what came since then, by the clock of this machine.
"""

import asyncio
import re
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from http import HTTPStatus
from urllib.parse import parse_qs

import orjson
from google.rpc.status_pb2 import Status

from zooserve_observability.span_protobuf import read_protobuf
from zooserve_observability.spans import read_spans, write_spans
from zooserve_observability.trace_log import TraceLog
from zooserve_observability.trace_log.portions import Portion, portions_of

__all__ = ["TRACES_PATH", "TraceReceiver"]

TRACES_PATH = "/v1/traces"
_ID = re.compile(r"[0-9a-f]{32}")
_HEAD_BYTES = 16 * 2**10
_QUERY_CHARACTERS = 1024
_BODY_BYTES = 8 * 2**20
"""Also of what a compressed one holds. An exporter sends 512 spans at a time, of 600 bytes each; 12 kB with content."""
_BODIES_BYTES = 64 * 2**20
"""Of all that are being read, and of all answers that wait for their readers."""
_JSON = "application/json"
_PROTOBUF = "application/x-protobuf"
_GZIP = 31
_CONNECTIONS = 256
"""A router asks for 8 requests at once, and keeps the connections."""
_LONGEST_WAIT_MS = 5000
_IDLE_S = 120.0
_BODY_S = 10.0
"""Also for an answer to be read."""


class _Refused(Exception):
    """A request that gets this status, and whose connection then ends."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class TraceReceiver:
    """Serves one log at one address."""

    def __init__(self, log: TraceLog, host: str, port: int) -> None:
        self._log = log
        self._host = host
        self._port = port
        self.bytes_in_hand = 0
        """Of exports that are worked on, and of answers that are not read yet."""
        self._reading = asyncio.Semaphore(1)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Listen for the block. Raises OSError when the port is taken."""
        connections: set[asyncio.Task[None]] = set()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if len(connections) >= _CONNECTIONS:
                writer.close()
                return
            task = asyncio.current_task()
            if task is not None:
                connections.add(task)
                task.add_done_callback(connections.discard)
            with suppress(asyncio.CancelledError):  # by the end of `serving` alone
                await self._converse(reader, writer)

        server = await asyncio.start_server(connected, self._host, self._port, limit=_HEAD_BYTES)
        try:
            yield
        finally:
            server.close()
            for task in list(connections):
                task.cancel()
            await asyncio.gather(*connections, return_exceptions=True)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # whoever exports or asks may leave at any time
        except TimeoutError:
            writer.transport.abort()  # an answer that nobody reads would be kept for as long as they stay
        except (_Refused, asyncio.LimitOverrunError) as refusal:
            status = refusal.status if isinstance(refusal, _Refused) else HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            writer.write(_answer(status, _JSON, b"{}", "connection: close\r\n"))
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        async with asyncio.timeout(_IDLE_S):
            head = await reader.readuntil(b"\r\n\r\n")
            method, target, headers = _read_head(head)
            with self._room(_length(headers)) as length:
                if headers.get("expect", "").lower() == "100-continue":
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                async with asyncio.timeout(_BODY_S):
                    body = await reader.readexactly(length)
                answer = await self._respond(method, target, headers, body)
        with self._room(len(answer)):
            writer.write(answer)
            async with asyncio.timeout(_BODY_S):
                await writer.drain()
        return headers.get("connection", "").lower() != "close"

    @contextmanager
    def _room(self, length: int) -> Iterator[int]:
        """Room for a body as long as it is worked on, or for an answer until it is read."""
        if self.bytes_in_hand + length > _BODIES_BYTES:
            raise _Refused(HTTPStatus.SERVICE_UNAVAILABLE)
        self.bytes_in_hand += length
        try:
            yield length
        finally:
            self.bytes_in_hand -= length

    async def _respond(self, method: str, target: str, headers: dict[str, str], body: bytes) -> bytes:
        path, _, asked = target.partition("?")
        if path == TRACES_PATH and method == "POST":
            return await self._take(headers, body)
        trace_id = path.removeprefix(f"{TRACES_PATH}/")
        if method == "GET" and _ID.fullmatch(trace_id):
            query = {key: values[0] for key, values in parse_qs(asked[:_QUERY_CHARACTERS]).items()}
            return _answer(*await self._told(trace_id, query))
        return _answer(HTTPStatus.NOT_FOUND, _JSON, b"{}")

    async def _take(self, headers: dict[str, str], body: bytes) -> bytes:
        """Take an export, and answer in its own form, as OTLP/HTTP has it."""
        form = headers.get("content-type", "").partition(";")[0].strip().lower()
        encoding = headers.get("content-encoding", "identity").lower()
        if form not in (_JSON, _PROTOBUF) or encoding not in ("identity", "gzip"):
            return _refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, _JSON, "send JSON or protobuf, plain or by gzip")
        try:
            # In a thread: a large export takes tens of milliseconds, and the loop has others to serve.
            async with self._reading:
                portions = await asyncio.to_thread(_read, form, encoding, body)
            self._log.take(portions)
        except _Refused as refusal:
            return _refusal(refusal.status, form, "the body is too large")
        except ValueError as exc:
            return _refusal(HTTPStatus.BAD_REQUEST, form, str(exc))
        return _answer(HTTPStatus.OK, form, b"{}" if form == _JSON else b"")

    async def _told(self, trace_id: str, query: dict[str, str]) -> tuple[HTTPStatus, str, bytes]:
        try:
            since_ns = int(query.get("since_ns", 0))
            if "below" in query:
                within_s = min(int(query.get("within_ms", 0)), _LONGEST_WAIT_MS) / 1000
                spans = await self._log.spans_below(trace_id, query["below"], query.get("name", ""), within_s, since_ns)
            else:
                spans = self._log.spans(trace_id, since_ns)
        except ValueError:
            return HTTPStatus.BAD_REQUEST, _JSON, b"{}"
        return HTTPStatus.OK, _JSON, write_spans(spans, "zooserve")


def _read_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    method, _, rest = first.partition(" ")
    target, _, version = rest.rpartition(" ")
    if not version.startswith("HTTP/1."):
        raise _Refused(HTTPStatus.BAD_REQUEST)
    pairs = (line.partition(":") for line in lines if line)
    return method, target, {name.strip().lower(): value.strip() for name, _, value in pairs}


def _length(headers: dict[str, str]) -> int:
    if "transfer-encoding" in headers:
        raise _Refused(HTTPStatus.LENGTH_REQUIRED)
    given = headers.get("content-length", "0")
    if not given.isdecimal() or len(given) > 9:
        raise _Refused(HTTPStatus.BAD_REQUEST)
    if int(given) > _BODY_BYTES:
        raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    return int(given)


def _read(form: str, encoding: str, body: bytes) -> list[Portion]:
    plain = _inflated(body) if encoding == "gzip" else body
    return portions_of(read_protobuf(plain) if form == _PROTOBUF else read_spans(plain))


def _inflated(body: bytes) -> bytes:
    """What a gzip file holds. Raises ValueError for what is none, and refuses more than a body may have."""
    inflater = zlib.decompressobj(_GZIP)
    try:
        inflated = inflater.decompress(body, _BODY_BYTES + 1)
    except zlib.error as exc:
        raise ValueError(f"no gzip: {exc}") from exc
    if len(inflated) > _BODY_BYTES:
        raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    if not inflater.eof or inflater.unused_data:
        raise ValueError("no gzip, or more than one")
    return inflated


def _refusal(status: HTTPStatus, form: str, message: str) -> bytes:
    """A refusal in OTLP's shape: google.rpc.Status, in the form of the request."""
    told = message[:500]
    if form == _JSON:
        return _answer(status, form, orjson.dumps({"message": told}))
    return _answer(status, form, Status(message=told).SerializeToString())


def _answer(status: HTTPStatus, form: str, body: bytes, more: str = "") -> bytes:
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: {form}\r\n{more}"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
