"""The edge of the app, in plain ASGI: context in, body capped while it is read, hang-ups noticed, errors in dialect.

Everything a request must get whatever it asked for happens here once: its id, its bounds, the headers that say what
ran, its metrics, and an answer in the caller's shape for every error.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson
from opentelemetry.trace import Span

from zooserve.errors import BodyTooLarge, InternalError, ServingError
from zooserve_observability.access_log import AccessLog
from zooserve_observability.metrics import UNKNOWN_MODEL, RouterMetrics
from zooserve_observability.tracing import NO_TRACE, RequestTrace, Tracing, failed, stage_failed
from zooserve_router.access import access_line, method_of, route_of
from zooserve_router.context import Record, RequestContext
from zooserve_router.dialects import SHAPES, dialect_of_path, error_headers, status_of
from zooserve_router.headers import (
    KnownHeaders,
    context_from,
    known_headers,
    request_id_from,
    trace_headers,
)
from zooserve_router.keys import KeyIds
from zooserve_router.reasons import reason_of
from zooserve_router.releases import release_labels
from zooserve_router.spaces import SPACE_HEADER

__all__ = ["Edge"]

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# Python refuses to read numbers of thousands of digits; no body is that long either.
_LENGTH_DIGITS = 18
# Whoever watches the router asks these every few seconds; a trace or a line of each would hide the requests.
_WATCHED = frozenset({"/metrics", "/health/live", "/health/ready", "/v2/health/live", "/v2/health/ready"})

_log = logging.getLogger(__name__)


class HungUp(Exception):
    """The client left before its answer was complete: an ordinary end, nobody is left to tell."""


class Answer:
    """The answer being sent: knows how far it got, and puts our headers on it."""

    def __init__(self, send: Send, request_id: str, record: Record) -> None:
        self.begun = False
        self.complete = False
        self.status = 0
        """Of HTTP, once it has begun."""
        self.request_id = request_id
        self.record = record
        self._send = send

    async def send(self, message: Message) -> None:
        """Pass one message on, with our headers on the first."""
        if message["type"] == "http.response.start":
            self.begun = True
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), *self._own_headers()]
        elif message["type"] == "http.response.body":
            self.record.bytes_out += len(message.get("body", b""))
            self.complete = not message.get("more_body")
        await self._send(message)

    async def error(self, path: str, error: ServingError) -> None:
        """Answer with an error in the path's dialect; once the answer has begun only its connection can be cut."""
        if self.begun:
            raise error
        body = orjson.dumps(SHAPES[dialect_of_path(path)](error))
        headers = {"content-type": "application/json", "content-length": str(len(body)), **error_headers(error)}
        if isinstance(error, BodyTooLarge):
            headers["connection"] = "close"  # the rest of the body is not going to be read
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": status_of(error), "headers": raw})
        await self.send({"type": "http.response.body", "body": body})

    def _own_headers(self) -> list[tuple[bytes, bytes]]:
        headers = [(b"x-request-id", self.request_id.encode())]
        model = self.record.model
        if model is not None:
            headers.append((b"x-zooserve-model", model.name.encode()))
            headers.append((b"x-zooserve-version", str(model.version).encode()))
        if self.record.space is not None:
            headers.append((SPACE_HEADER.encode(), self.record.space.encode()))
        if self.record.phases_s:
            phases = ", ".join(f"{name};dur={spent * 1000:.2f}" for name, spent in self.record.phases_s.items())
            headers.append((b"server-timing", phases.encode()))
        return headers


class Edge:
    """The outermost layer of ours around the app."""

    def __init__(
        self,
        app: App,
        *,
        metrics: RouterMetrics,
        max_body_bytes: int,
        max_deadline_s: float,
        tracing: Tracing | None = None,
        access_log: AccessLog | None = None,
        key_ids: KeyIds | None = None,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._tracing = tracing or Tracing.off()
        self._access_log = access_log
        self._key_ids = key_ids or KeyIds()
        self._max_body_bytes = max_body_bytes
        self._max_deadline_s = max_deadline_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; anything but HTTP passes through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = known_headers(scope["headers"])
        record = Record()
        answer = Answer(send, request_id_from(headers), record)
        key_id = self._key_ids.of(headers)
        trace = self._trace(scope, headers)
        began = time.perf_counter()
        with self._metrics.flying():
            try:
                await self._serve(scope, receive, headers, answer, trace, key_id)
            except ServingError as error:
                record.failed(error)
                if status_of(error) < 500 and (reason := reason_of(error)):
                    self._metrics.refusal(reason)
                await answer.error(scope["path"], error)
            except HungUp:
                record.outcome = "cancelled"
            except asyncio.CancelledError:
                record.outcome = "cancelled"
                raise
            except Exception:
                _log.exception("request %s to %s failed unexpectedly", answer.request_id, route_of(scope))
                record.failed(_unforeseen(answer.request_id))
                await answer.error(scope["path"], _unforeseen(answer.request_id))
            finally:
                duration_s = time.perf_counter() - began
                self._count(record, duration_s)
                if trace.is_recorded:
                    _describe(trace, scope, key_id, answer)
                    trace.root.end()
                self._log(scope, answer, trace, key_id, duration_s)

    def _trace(self, scope: Scope, headers: KnownHeaders) -> RequestTrace:
        return NO_TRACE if scope["path"] in _WATCHED else self._tracing.request(trace_headers(headers))

    def _log(self, scope: Scope, answer: Answer, trace: RequestTrace, key_id: str, duration_s: float) -> None:
        log = self._access_log
        if log is None or (scope["path"] in _WATCHED and not log.takes_health):
            return
        log.put(
            access_line(
                scope,
                answer.record,
                request_id=answer.request_id,
                trace_id=trace.trace_id,
                key_id=key_id,
                status=answer.status,
                duration_s=duration_s,
                pid=log.pid,
            )
        )

    def _count(self, record: Record, duration_s: float) -> None:
        if record.model is None and record.outcome == "ok":
            return  # health, metrics and lists are not requests to a model
        self._metrics.ended(*_labels(record), record.outcome, duration_s)
        self._metrics.read_and_wrote(*_labels(record), record.input_tokens, record.output_tokens)
        release = None if record.model is None else release_labels(record.model)
        if release is not None:
            self._metrics.releases.ended(release, record.outcome, duration_s)

    async def _serve(
        self, scope: Scope, receive: Receive, headers: KnownHeaders, answer: Answer, trace: RequestTrace, key_id: str
    ) -> None:
        context = context_from(headers, answer.request_id, answer.record, self._max_deadline_s, trace, key_id)
        scope.setdefault("state", {})["context"] = context
        body = await self._whole_body(headers, receive, context)
        await self._unless_hung_up(scope, receive, answer, body)

    async def _whole_body(self, headers: KnownHeaders, receive: Receive, context: RequestContext) -> bytes:
        """The body, refused as soon as it is too long. Read here, so that what can still come is only a hang-up."""
        declared = headers.get(b"content-length", b"0").lstrip(b"0")
        if declared.isdigit() and (len(declared) > _LENGTH_DIGITS or int(declared) > self._max_body_bytes):
            raise self._too_large()
        whole = bytearray()
        async with context.deadline.enforced():
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise HungUp
                whole += message.get("body", b"")
                context.record.bytes_in = len(whole)
                if len(whole) > self._max_body_bytes:
                    raise self._too_large()
                if not message.get("more_body"):
                    return bytes(whole)

    def _too_large(self) -> BodyTooLarge:
        return BodyTooLarge(f"The body is larger than {self._max_body_bytes} bytes. Send fewer or shorter texts.")

    async def _unless_hung_up(self, scope: Scope, receive: Receive, answer: Answer, body: bytes) -> None:
        """Run the app on the body it has; cancel it when the client leaves, and raise HungUp then."""
        work = asyncio.current_task()
        if work is None:
            raise RuntimeError("an ASGI app runs in a task")
        left = asyncio.Event()
        watch = asyncio.create_task(_cancel_on_hang_up(receive, answer, left, work))
        try:
            await self._app(scope, _replayed(body, left), answer.send)
        except asyncio.CancelledError:
            # Ray cancels too; only a cancellation that is all our own ends here.
            if left.is_set() and work.uncancel() == 0:
                raise HungUp from None
            raise
        finally:
            watch.cancel()


async def _cancel_on_hang_up(receive: Receive, answer: Answer, left: asyncio.Event, work: asyncio.Task[Any]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    if not answer.complete:  # servers report a disconnect after a whole answer, too
        work.cancel()
    left.set()


def _replayed(body: bytes, left: asyncio.Event) -> Receive:
    """A `receive` that hands out the body once, and then waits for the hang-up."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    return receive


def _describe(trace: RequestTrace, scope: Scope, key_id: str, answer: Answer) -> None:
    """What the whole request was and what became of it. Of the caller's own words only the request's id."""
    span, record = trace.root, answer.record
    model, version, slo_class = _labels(record)
    span.set_attributes(
        {
            "http.request.method": method_of(scope),
            "http.route": route_of(scope),
            "zooserve.request_id": answer.request_id,
            "zooserve.key_id": key_id,
            "zooserve.model": model,
            "zooserve.model_version": version,
            "zooserve.slo_class": slo_class,
            "zooserve.outcome": record.outcome,
        }
    )
    if answer.begun:
        span.set_attribute("http.response.status_code", answer.status)
    if record.model is not None and record.model.release_of is not None:
        span.set_attribute("zooserve.release_of", record.model.release_of)
    if "first_token" in record.phases_s:
        span.set_attribute("zooserve.time_to_first_token_s", record.phases_s["first_token"])
    if record.error is not None:
        # Its message may quote the caller.
        _describe_error(span, record.error, record.error.message if trace.keeps_content else "")


def _describe_error(span: Span, error: ServingError, message: str) -> None:
    if reason := reason_of(error):
        span.set_attribute("zooserve.error_code", reason)
    if error.failed is not None:
        stage_failed(span, error.failed)
    if status_of(error) >= 500:  # a refusal is the caller's error, not this span's
        failed(span, type(error).__name__, message)
        return
    span.set_attribute("error.type", type(error).__name__)
    if message:
        span.set_attribute("error.message", message)


def _labels(record: Record) -> tuple[str, str, str]:
    if record.model is None:
        return (UNKNOWN_MODEL, "", record.slo_class)
    return (record.model.name, str(record.model.version), record.slo_class)


def _unforeseen(request_id: str) -> InternalError:
    return InternalError(f"Something went wrong here that is not your fault. Quote request id {request_id}.")
