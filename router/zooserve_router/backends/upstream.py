"""One upstream over HTTP: a request goes out, its events come back as they are written over there.

Nothing is gathered: each event is passed on as soon as it is whole. Leaving the events closes the connection at once,
which is how an upstream learns that nobody wants the rest.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import httpx
import orjson

from zooserve.catalogue import Model
from zooserve.errors import BackendFailed, BackendUnavailable, DeadlineExceeded, ServingError
from zooserve.sdk.sse import EventReader, ServerEvent
from zooserve_router.backends.refusals import Refused, fault_in, in_callers_words, refusal, retry_after_s
from zooserve_router.breaker import Attempt
from zooserve_router.chat.generation import Work
from zooserve_router.context import Deadline
from zooserve_router.waits import Waits
from zooserve_router.ways import Way, Ways

__all__ = ["Upstream", "client_for"]

_CONNECT_TIMEOUT_S = 5.0
# Most servers here close an idle connection after five seconds, and a request that meets that end is lost.
_KEPT_S = 3.0
_LONGEST_ERROR_BYTES = 64 * 2**10
# After its last event a server ends the response in the same breath; the connection can be kept if it does.
_LAST_BYTES_S = 0.25
_CONNECTING = "connection.connect_tcp.started"
"""What httpcore calls that step, in its `trace` extension."""
_log = logging.getLogger(__name__)


def client_for(model: Model) -> httpx.AsyncClient:
    """A client with room for what admission lets through. Redirects are not followed: they would carry the key."""
    kept = model.chat_backend.max_in_flight
    return httpx.AsyncClient(
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=kept, keepalive_expiry=_KEPT_S),
        timeout=httpx.Timeout(None, connect=_CONNECT_TIMEOUT_S),
        follow_redirects=False,
        # The engine is on this machine, or next to it: no proxy stands between.
        trust_env=model.runs_on == "upstream",
    )


@dataclass(frozen=True)
class Upstream:
    """Where one model's requests go, with what every one of them carries."""

    http: httpx.AsyncClient
    model: Model
    url: str
    """Base address with its `/v1`, no slash at the end."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with every request; the key is among them."""
    way: Way = field(default_factory=lambda: Ways().way("upstream"), repr=False)

    @property
    def served_name(self) -> str:
        """What the model is called over there."""
        return self.model.chat_backend.model or self.model.name

    @asynccontextmanager
    async def answering(
        self,
        work: Work,
        path: str,
        body: Mapping[str, Any],
        is_last: Callable[[ServerEvent], bool],
        timeout_s: float,
    ) -> AsyncIterator[AsyncGenerator[ServerEvent, None]]:
        """The events of the answer to this work, up to the one that `is_last`, all within `timeout_s`.

        Raises what the upstream's refusal is to the caller, also out of the block. Leaving it closes the connection.
        """
        with (
            in_callers_words(work),
            self.way.breaker.attempt(timeout_s, is_probe=work.is_probe) as attempt,
            _noted(attempt),
        ):
            async with (
                aclosing(self._events(path, body, is_last, timeout_s, work.headers)) as events,
                aclosing(_accepted(events, attempt)) as accepted,
            ):
                yield accepted

    async def _events(
        self,
        path: str,
        body: Mapping[str, Any],
        is_last: Callable[[ServerEvent], bool],
        timeout_s: float,
        headers: Mapping[str, str],
    ) -> AsyncGenerator[ServerEvent, None]:
        """`headers` are the caller's that may pass; ours win."""
        with self._translated(), closing(Waits(Deadline.after(timeout_s), self._late)) as waits:
            with waits:
                answer = await self._sent(path, body, headers)
            async with _left_well(answer), aclosing(self._read(answer, is_last, waits)) as events:
                async for event in events:
                    yield event

    async def list_models(self, timeout_s: float) -> None:
        """Ask for the list of models, which costs nothing: the upstream is there, and takes our key.

        Its list is not held against it: many leave out names that they serve. A server that has none answers 404.
        """
        with self.way.breaker.attempt(timeout_s, is_probe=True) as attempt, _noted(attempt), self._translated():
            async with asyncio.timeout(timeout_s):
                answer = await self.http.get(f"{self.url}/models", headers=self.headers)
            if Refused(answer.status_code).is_fault:
                attempt.failed(f"it answered {answer.status_code}")
            else:
                attempt.reached()
        if answer.status_code not in (200, 404, 405):
            raise BackendUnavailable(self._refusal(answer, answer.content[:_LONGEST_ERROR_BYTES]).message)

    async def _sent(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> httpx.Response:
        """The answer's beginning. Sent a second time where nobody was there, or where a kept connection had ended."""
        # Whoever packs a stream gathers it first.
        fixed = {"content-type": "application/json", "accept": "text/event-stream", "accept-encoding": "identity"}
        merged = httpx.Headers(headers)
        merged.update({**fixed, **self.headers})
        content = orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS)

        steps: set[str] = set()

        async def note(step: str, info: Mapping[str, Any]) -> None:
            steps.add(step)

        def request() -> httpx.Request:
            extensions = {"trace": note}
            return self.http.build_request(
                "POST", f"{self.url}{path}", content=content, headers=merged, extensions=extensions
            )

        async def send() -> httpx.Response:
            steps.clear()
            return await self._begun(request())

        def may_repeat(fault: Exception) -> bool:
            if isinstance(fault, httpx.ConnectError):
                return True
            broken = isinstance(fault, httpx.RemoteProtocolError | httpx.ReadError | httpx.WriteError)
            # Else it was not kept: the server broke off with this very request, which may be why.
            return broken and _CONNECTING not in steps

        return await self.way.tried(send, may_repeat)

    async def _begun(self, request: httpx.Request) -> httpx.Response:
        """The answer's head. Sent by a task of its own, which is cancelled once, however often its caller is."""
        sending = asyncio.create_task(self.http.send(request, stream=True))
        try:
            return await asyncio.shield(sending)
        except asyncio.CancelledError:
            if not sending.cancel() and sending.exception() is None:
                async with _left_well(sending.result()):
                    raise
            raise

    async def _read(
        self, answer: httpx.Response, is_last: Callable[[ServerEvent], bool], waits: Waits
    ) -> AsyncGenerator[ServerEvent, None]:
        # It is a generator, and as one it holds the connection until it is closed.
        async with aclosing(cast("AsyncGenerator[bytes, None]", answer.aiter_bytes())) as chunks:
            if answer.status_code != 200:
                with waits:
                    beginning = await _beginning(chunks)
                raise self._refusal(answer, beginning) from Refused(answer.status_code)
            if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                raise BackendFailed(f"The upstream of {self.model.name} does not stream its answer.")
            reader = EventReader()
            while True:
                with waits:
                    chunk = await anext(chunks, b"")
                if not chunk:
                    break
                for event in reader.feed(chunk):
                    yield event
                    if is_last(event):
                        await _drained(chunks)
                        return
            for event in reader.rest():
                yield event

    def _refusal(self, answer: httpx.Response, body: bytes) -> ServingError:
        try:
            fault = fault_in(orjson.loads(body))
        except orjson.JSONDecodeError:
            fault = fault_in(None)  # a proxy's page says nothing to our caller
        retry_s = retry_after_s(answer.headers)
        error = refusal(answer.status_code, fault, self.model.name, self.served_name, retry_s)
        if isinstance(error, BackendFailed | BackendUnavailable):
            _log.warning("%s", error.message)
        return error

    def object_in(self, event: ServerEvent) -> dict[str, Any]:
        """The event's object. Raises what the upstream's error is, where it is one: those come after the headers."""
        try:
            told = orjson.loads(event.data)
        except orjson.JSONDecodeError as exc:
            raise BackendFailed(f"The upstream of {self.model.name} sent an event that is no JSON.") from exc
        if not isinstance(told, dict):
            raise BackendFailed(f"The upstream of {self.model.name} sent an event that is no object.")
        if told.get("error") or event.name == "error":
            fault = fault_in(told)
            status = fault.status or 500
            raise refusal(status, fault, self.model.name, self.served_name) from Refused(status)
        return told

    def _late(self) -> DeadlineExceeded:
        return DeadlineExceeded(f"The upstream of {self.model.name} did not answer in time.")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """What goes wrong on the way, as our errors."""
        try:
            yield
        except TimeoutError as exc:
            raise self._late() from exc
        except httpx.ConnectError as exc:
            raise BackendUnavailable(f"The upstream of {self.model.name} cannot be reached.") from exc
        except httpx.TimeoutException as exc:  # of connecting alone: everything else has the deadline
            raise BackendUnavailable(f"The upstream of {self.model.name} cannot be reached in time.") from exc
        except httpx.TransportError as exc:
            raise BackendUnavailable(f"The upstream of {self.model.name} broke its answer off.") from exc
        except httpx.HTTPError as exc:  # such as a body that is not encoded as it says
            raise BackendFailed(f"The upstream of {self.model.name} sent what HTTP does not allow.") from exc


@asynccontextmanager
async def _left_well(answer: httpx.Response) -> AsyncIterator[None]:
    """Close the answer behind the block, and its connection for certain where somebody leaves in the middle.

    A second cancellation, of the caller beside the deadline, interrupts httpcore while it closes, and then it never
    does (measured): the server would write on, for nobody.
    """
    try:
        yield
    except (asyncio.CancelledError, GeneratorExit, DeadlineExceeded):
        if (connection := answer.extensions.get("network_stream")) is not None:
            await connection.aclose()  # at once, before anything can interrupt it
        raise
    finally:
        await answer.aclose()


@contextmanager
def _noted(attempt: Attempt) -> Iterator[None]:
    """What a call's failure shows of the upstream: to break off or answer 5xx is its fault, to refuse is not."""
    try:
        yield
    except ServingError as error:
        cause = error.__cause__
        if isinstance(cause, httpx.TransportError):
            attempt.failed(type(cause).__name__)
        elif isinstance(cause, Refused) and cause.is_fault:
            attempt.failed(f"it answered {cause.status}")
        elif isinstance(cause, Refused):
            attempt.answered()
        raise


async def _accepted(events: AsyncIterator[ServerEvent], attempt: Attempt) -> AsyncGenerator[ServerEvent, None]:
    """The same events; the upstream works once its first was no error."""
    async for event in events:
        yield event
        attempt.answered()


async def _beginning(chunks: AsyncIterator[bytes]) -> bytes:
    """As much of an error's body as is looked at."""
    body = b""
    async for chunk in chunks:
        body += chunk
        if len(body) > _LONGEST_ERROR_BYTES:
            break
    return body[:_LONGEST_ERROR_BYTES]


async def _drained(chunks: AsyncIterator[bytes]) -> None:
    """Read the little that may follow the last event, so that the connection is kept."""
    try:
        async with asyncio.timeout(_LAST_BYTES_S):
            async for _ in chunks:
                pass
    except (TimeoutError, httpx.HTTPError):
        return  # the answer is whole; the connection is closed instead
