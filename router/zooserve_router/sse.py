"""Server-sent events: data lines, the error event, and a response that closes its source however it ends."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, closing
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from zooserve.errors import DeadlineExceeded
from zooserve_router.context import Deadline
from zooserve_router.waits import Waits

__all__ = ["DONE", "EventStream", "event", "streamed"]

DONE = b"data: [DONE]\n\n"

# For what is said after the deadline, that it has passed above all: the source has ended by then and holds nothing.
_LAST_WORDS_S = 1.0

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),  # nginx would collect chunks otherwise
]


def event(payload: Any, name: str | None = None) -> bytes:
    """One event, named where its dialect names them.

    JSON has no bare line breaks but U+2028, U+2029 and U+0085, at which some clients split lines too.
    """
    data = orjson.dumps(payload)
    for character, escaped in _LINE_BREAKS:
        data = data.replace(character, escaped)
    line = b"data: " + data + b"\n\n"
    return line if name is None else b"event: " + name.encode() + b"\n" + line


_LINE_BREAKS = [(character.encode(), f"\\u{ord(character):04x}".encode()) for character in "\u0085\u2028\u2029"]


async def streamed(events: AsyncGenerator[bytes, None], deadline: Deadline) -> "EventStream":
    """The response of these events, to be read by the deadline.

    Awaits the first one now, so that an early failure still becomes a status code.
    """
    try:
        first = await anext(events, b"")
    except BaseException:  # a cancellation, too, must not leave the source open
        await events.aclose()
        raise
    return EventStream(first, events, deadline)


class EventStream(Response):
    """Sends events as they come. The source is closed when it ends, when the client leaves, and when sending fails.

    A client that does not read is waited for until the deadline, no longer: the source holds room on its backend.
    """

    def __init__(self, first: bytes, later: AsyncGenerator[bytes, None], deadline: Deadline) -> None:
        super().__init__()
        self._first = first
        self._later = later
        self._deadline = deadline

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        async with aclosing(self._later) as later:
            with closing(Waits(self._deadline, _unread)) as waits:
                await self._sent(send, waits, {"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
                await self._sent(send, waits, {"type": "http.response.body", "body": self._first, "more_body": True})
                async for chunk in later:
                    await self._sent(send, waits, {"type": "http.response.body", "body": chunk, "more_body": True})
                await self._sent(send, waits, {"type": "http.response.body", "body": b"", "more_body": False})

    async def _sent(self, send: Send, waits: Waits, message: Message) -> None:
        if not waits.ended:
            with waits:
                await send(message)
            return
        try:
            async with asyncio.timeout(_LAST_WORDS_S):
                await send(message)
        except TimeoutError as exc:
            raise _unread() from exc


def _unread() -> DeadlineExceeded:
    return DeadlineExceeded("The client did not read its answer within the request's time budget.")
