"""Streamed chats as their clients see them: over HTTP with server-sent events, or over Triton's own gRPC stream.

Both clients only note when bytes came while an answer comes, and read them once it is whole: on a machine where client
and engine share the cores, whatever a client computes per token it takes from the engine.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import grpc
import numpy as np
from chat_prompts import SYSTEM_PROMPT
from tritonclient.grpc import aio as triton

from zooserve_router.backends.leaf import inputs_of
from zooserve_router.chat.generation import Generation

__all__ = ["EventClient", "Heard", "LeafClient", "StreamClient", "StreamFailed", "closed_loop", "distinct_questions"]

_WORDS = (
    "river garden winter engine market doctor island letter bridge silver kitchen teacher forest window summer captain "
    "mountain paper village music harbor morning shadow orange station yellow number family history travel"
).split()
_SUBJECTS = (
    "a lighthouse keeper", "two rivers that meet", "the first railway", "a lost letter", "bread and how it is made",
    "a winter market", "the tides", "an old clockmaker", "bees in a city", "a map with a mistake",
    "the colour blue", "a long bridge", "rain on a tin roof", "a chess game", "the smell of books", "a night train",
)  # fmt: skip


class StreamFailed(Exception):
    """An answer that was refused, or broke off."""


@dataclass(frozen=True)
class Heard:
    """One whole answer. Seconds count from when the request was sent."""

    first_s: float
    """Until the first text."""
    whole_s: float
    text: str
    finish_reason: str
    completion_tokens: int = 0
    """As the server counted them; 0 where it does not."""


class _ClosedMeanwhile(Exception):
    """A kept connection that the server had given up: nothing was asked yet."""


class StreamClient(Protocol):
    """What can ask a question over and over."""

    async def ask(self, question: str, max_tokens: int) -> Heard: ...

    async def close(self) -> None: ...


def distinct_questions(count: int, words: int, seed: int) -> list[str]:
    """Questions of about so many words that begin differently, so that none finds its prefix cached for another one.

    What stands before them in every prompt, the system prompt, is cached for all alike.
    """
    chance = np.random.default_rng(seed)
    made = []
    for number in range(count):
        opening = " ".join(chance.choice(_WORDS, size=max(1, words - 12)))
        subject = _SUBJECTS[number % len(_SUBJECTS)]
        made.append(f"{opening.capitalize()}: with these words in mind, write a long story about {subject}.")
    return made


async def closed_loop(client: StreamClient, questions: Sequence[str], concurrency: int, max_tokens: int) -> list[Heard]:
    """Every question asked once, `concurrency` at a time, the next when one is answered; in the questions' order."""
    upcoming = iter(enumerate(questions))
    heard: dict[int, Heard] = {}

    async def one() -> None:
        for number, question in upcoming:
            heard[number] = await client.ask(question, max_tokens)

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(one())
    return [heard[number] for number in range(len(questions))]


class EventClient:
    """/v1/chat/completions of one server, streamed and greedy, over kept connections."""

    def __init__(self, address: str, model: str, headers: dict[str, str] | None = None) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._model = model
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        self._idle: list[_Connection] = []

    async def ask(self, question: str, max_tokens: int) -> Heard:
        """One answer. Raises StreamFailed."""
        body = {
            "model": self._model,
            "messages": [
                {"role": "system", "content": SYSTEM_PROMPT},
                {"role": "user", "content": question},
            ],
            "max_tokens": max_tokens,
            "temperature": 0,
            "seed": 1,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        request = self._request(json.dumps(body).encode())
        while True:
            connection = await self._connection()
            sent = time.perf_counter()
            try:
                answer = await connection.exchange(request)
            except _ClosedMeanwhile:
                continue
            if connection.reusable:
                self._idle.append(connection)
            return _heard(answer, sent)

    async def close(self) -> None:
        """Close the connections."""
        for connection in self._idle:
            connection.close()

    def _request(self, body: bytes) -> bytes:
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n{self._headers}"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    async def _connection(self) -> "_Connection":
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable:
                return connection
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(_Connection, self._host, self._port)
        return connection


@dataclass(frozen=True)
class _Answer:
    """An HTTP answer's bytes, and when they came."""

    data: bytes
    first_at: float | None
    ended_at: float


_FIRST_TEXT = re.compile(rb'"content": ?"[^"]')
_LAST_CHUNK = b"\r\n0\r\n\r\n"
"""With the line break before it: a header may end in a zero, too."""
_STATUS_OK = b"HTTP/1.1 200 "
_SEEN_AGAIN = 16
"""Bytes of what came before that are looked at with what comes: a mark may come in two pieces."""


class _Connection(asyncio.Protocol):
    """One HTTP/1.1 connection: sends a request, collects the chunked answer."""

    def __init__(self) -> None:
        self.reusable = True
        self._answered = False
        """Whether it has carried an answer before."""
        self._transport: asyncio.Transport | None = None
        self._parts: list[bytes] = []
        self._start = b""
        self._tail = b""
        self._first_at: float | None = None
        self._answer: asyncio.Future[_Answer] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    async def exchange(self, request: bytes) -> _Answer:
        """The whole answer to a request. Raises StreamFailed for one that breaks off."""
        assert self._transport is not None
        self._parts, self._start, self._tail, self._first_at = [], b"", b"", None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._answer
        except BaseException:
            self.close()
            raise

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        self._parts.append(data)
        seen = self._tail + data
        self._tail = seen[-_SEEN_AGAIN:]
        if self._first_at is None and _FIRST_TEXT.search(seen):
            self._first_at = now
        if len(self._start) < len(_STATUS_OK):
            self._start += data[: len(_STATUS_OK) - len(self._start)]
        if seen.endswith(_LAST_CHUNK) or not _STATUS_OK.startswith(self._start):
            self._ended(now)

    def connection_lost(self, exc: Exception | None) -> None:
        self.reusable = False
        if self._answer is None or self._answer.done():
            return
        if self._answered and not self._parts:
            self._answer.set_exception(_ClosedMeanwhile())
        else:
            said = b"".join(self._parts)[-200:]
            self._answer.set_exception(StreamFailed(f"the connection was lost ({exc}) after {said!r}"))

    def close(self) -> None:
        """Hang up."""
        self.reusable = False
        if self._transport is not None:
            self._transport.close()

    def _ended(self, now: float) -> None:
        whole = b"".join(self._parts)
        head = whole.partition(b"\r\n\r\n")[0].lower()
        if not whole.startswith(_STATUS_OK) or b"connection: close" in head:
            self.close()
        self._answered = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(_Answer(whole, self._first_at, now))


def _heard(answer: _Answer, sent: float) -> Heard:
    """The events of an answer read. Raises StreamFailed for an error, whatever its form."""
    if not answer.data.startswith(_STATUS_OK):
        raise StreamFailed(answer.data[:600].decode("utf-8", "replace"))
    text, reason, tokens = [], "", 0
    for event in _events(_dechunked(answer.data.partition(b"\r\n\r\n")[2])):
        if "error" in event:
            raise StreamFailed(str(event["error"]))
        tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
        for choice in event["choices"]:
            text.append(choice["delta"].get("content") or "")
            reason = choice["finish_reason"] or reason
    if answer.first_at is None or not reason:
        raise StreamFailed(f"no text or no finish reason in {answer.data[-300:]!r}")
    return Heard(answer.first_at - sent, answer.ended_at - sent, "".join(text), reason, tokens)


def _dechunked(body: bytes) -> bytes:
    """The content of a body in chunked transfer coding."""
    parts, at = [], 0
    while True:
        end = body.index(b"\r\n", at)
        size = int(body[at:end].partition(b";")[0], 16)
        if size == 0:
            return b"".join(parts)
        parts.append(body[end + 2 : end + 2 + size])
        at = end + 2 + size + 2


def _events(body: bytes) -> list[Any]:
    lines = (line for line in body.split(b"\n") if line.startswith(b"data: ") and line != b"data: [DONE]")
    return [json.loads(line.removeprefix(b"data: ")) for line in lines]


class LeafClient:
    """A leaf's Triton asked directly over gRPC streams, with the tensors that the router would send it."""

    def __init__(self, address: str, model: str, asked: Callable[[str, int], Awaitable[Generation]]) -> None:
        self._client = triton.InferenceServerClient(address)
        self._model = model
        self._asked = asked

    async def ask(self, question: str, max_tokens: int) -> Heard:
        """One answer. Raises StreamFailed."""
        request = {"model_name": self._model, "inputs": inputs_of(await self._asked(question, max_tokens))}
        sent = time.perf_counter()
        times, last = [], None
        try:
            async for last, error in self._client.stream_infer(_only(request)):  # noqa: B007 - read when all have come
                if error is not None:
                    raise StreamFailed(str(error))
                times.append(time.perf_counter())
        except grpc.aio.AioRpcError as exc:
            raise StreamFailed(str(exc)) from exc
        if last is None:
            raise StreamFailed("the stream ended without an answer")
        text, reason = (last.as_numpy(name).flat[0].decode() for name in ("text_output", "finish_reason"))
        # The leaf sends nothing before there is text.
        return Heard(times[0] - sent, times[-1] - sent, text, reason)

    async def close(self) -> None:
        """Close the channel."""
        await self._client.close()


async def _only(request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    yield request
