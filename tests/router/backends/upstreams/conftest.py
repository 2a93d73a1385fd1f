"""An upstream that says over HTTP what the test tells it to: only the transport is fake."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from zooserve.catalogue import Backend, Limits, Model
from zooserve_router.backends.anthropic import AnthropicUpstream
from zooserve_router.backends.openai import OpenAIUpstream
from zooserve_router.backends.upstream import Upstream
from zooserve_router.chat.generation import Piece, Work

KEY = "sk-very-secret"


class Script(httpx.AsyncByteStream):
    """The body of an answer: chunks, each perhaps an error to raise or an event to wait for."""

    def __init__(self, chunks: Sequence[bytes | Exception | asyncio.Event]) -> None:
        self._chunks = chunks
        self.closed = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            if isinstance(chunk, Exception):
                raise chunk
            if isinstance(chunk, asyncio.Event):
                await chunk.wait()
            else:
                yield chunk

    async def aclose(self) -> None:
        self.closed.set()


@dataclass
class FakeUpstream:
    """Answers each request with the next of its answers, the last one again and again."""

    answers: list[httpx.Response | Exception] = field(default_factory=list)
    asked: list[httpx.Request] = field(default_factory=list)

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def body(self) -> dict[str, Any]:
        """What was asked last."""
        parsed: dict[str, Any] = json.loads(self.asked[-1].content)
        return parsed

    def streams(self, *chunks: bytes | Exception | asyncio.Event) -> Script:
        """Answer with these bytes."""
        script = Script(chunks)
        self.answers = [httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=script)]
        return script

    def refuses(self, status: int, body: Any, **headers: str) -> None:
        """Answer with an error."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers = [httpx.Response(status, headers=named, stream=Script([content]))]


def model_of(**backend: Any) -> Model:
    """A chat model with this backend."""
    given = {"kind": "openai", "url": "http://upstream/v1", "model": "their-model", **backend}
    return Model(
        name="ours",
        task="chat",
        runs_on="upstream",
        backend=Backend(**given),
        limits=Limits(max_tokens=400),
        licence="none",
        source="a test",
    )


def client_of(fake: FakeUpstream, model: Model) -> OpenAIUpstream | AnthropicUpstream:
    """The client of a model, over the fake."""
    http = httpx.AsyncClient(transport=httpx.MockTransport(fake.handle))
    if model.chat_backend.kind == "anthropic":
        return AnthropicUpstream(Upstream(http, model, "http://upstream/v1", {"x-api-key": KEY}))
    return OpenAIUpstream(Upstream(http, model, "http://upstream/v1", {"authorization": f"Bearer {KEY}"}))


@pytest.fixture
def model() -> Callable[..., Model]:
    """A model with this backend."""
    return model_of


@pytest.fixture
def fake() -> FakeUpstream:
    return FakeUpstream()


@pytest.fixture
def answers(fake: FakeUpstream) -> Callable[..., Any]:
    """Asks a model with this backend and gives all pieces of its answer."""

    async def ask(work: Work, timeout_s: float = 5, **backend: Any) -> list[Piece]:
        return [piece async for piece in client_of(fake, model_of(**backend)).generate(work, timeout_s)]

    return ask


def event(payload: Any, name: str | None = None) -> bytes:
    """One event as it goes over the wire."""
    head = b"" if name is None else f"event: {name}\n".encode()
    data = payload if isinstance(payload, str) else json.dumps(payload)
    return head + f"data: {data}\n\n".encode()


@pytest.fixture
def sse() -> Callable[..., bytes]:
    """Writes one event."""
    return event


@pytest.fixture
def client(fake: FakeUpstream) -> Callable[..., OpenAIUpstream | AnthropicUpstream]:
    """The client of a model with this backend."""
    return lambda **backend: client_of(fake, model_of(**backend))


@pytest.fixture
def key() -> str:
    """What the router shows the upstream, and nobody else is to see."""
    return KEY
