"""The routes that generate text: whole answers, and answers as they are written."""

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack

from zooserve.errors import ClientClosed
from zooserve.sdk.answers import Answer, broke_off
from zooserve.sdk.bodies import call_headers
from zooserve.sdk.budget import Budget
from zooserve.sdk.calls import Call
from zooserve.sdk.chat_chunks import Gathered, chat_answer, chunk_in, completion, gathered_whole
from zooserve.sdk.chat_fields import ChatFields, CompletionFields, Message, Prompt, chat_body, completion_body
from zooserve.sdk.chat_results import ChatAnswer, Completion
from zooserve.sdk.faults import unreadable
from zooserve.sdk.sse import EventReader, ServerEvent

if TYPE_CHECKING:
    from zooserve.sdk.aio.http import AsyncBody, AsyncHttp

__all__ = ["AsyncChat", "AsyncTextStream"]

Whole = TypeVar("Whole", bound=Completion)

_CHAT = "/v1/chat/completions"
_COMPLETIONS = "/v1/completions"


class AsyncTextStream(Generic[Whole]):
    """An answer as it is written: iterate for its text, piece by piece.

    Leaving the `with` block hangs up, which ends the generation on the platform. What breaks off in the middle raises,
    and is never taken for a whole answer.
    """

    def __init__(self, body: "AsyncBody", whole: Callable[[Answer, Gathered], Whole]) -> None:
        self._body = body
        self._head = body.head
        self._whole = whole
        self._reader = EventReader()
        self._events: deque[ServerEvent] = deque()
        self._gathered = Gathered()
        self._answer: Whole | None = None
        self._left = False

    @property
    def model(self) -> str:
        """Who writes."""
        return self._head.origin()["model"]

    @property
    def version(self) -> str:
        """Its release."""
        return self._head.origin()["version"]

    @property
    def request_id(self) -> str:
        """What to look for in the platform's access log and traces."""
        return self._head.request_id

    @property
    def text(self) -> str:
        """What has come of the first choice so far."""
        return self._gathered.text

    @property
    def answer(self) -> Whole:
        """The whole answer, once the iteration has come to its end. Raises ClientClosed before."""
        if self._answer is None:
            raise ClientClosed("The answer is not whole yet: iterate the stream to its end first.")
        return self._answer

    def __aiter__(self) -> Self:
        """The stream itself: each piece of text comes once."""
        return self

    async def __anext__(self) -> str:
        """The next piece of the first choice's text.

        Raises AnswerBrokeOff where the connection ends before the answer does, DeadlineExceeded at the end of the
        budget, and whatever fails on the platform meanwhile.
        """
        while (chunk := await self._chunk()) is not None:
            if text := self._add(chunk):
                return text
        raise StopAsyncIteration

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """The chunks as OpenAI's API has them, each a dict: all choices, calls of functions, log-probabilities, usage.

        Raises what iterating raises.
        """
        while (chunk := await self._chunk()) is not None:
            self._add(chunk)
            yield chunk

    def leave(self) -> None:
        """Nothing can be read any more: the block was left."""
        self._left = True

    def _add(self, chunk: dict[str, Any]) -> str:
        with self._head.being_read():
            return self._gathered.add(chunk)

    async def _chunk(self) -> dict[str, Any] | None:
        """The next one; None at the end of the answer, which is whole then."""
        if self._answer is not None:
            return None
        if self._left:
            raise ClientClosed("The stream was left: read it inside its `with` block.")
        while not self._events:
            self._events.extend(await self._read())
        chunk = chunk_in(self._events.popleft(), self._head)
        if chunk is None:
            self._answer = self._whole(self._head, self._gathered)
        return chunk

    async def _read(self) -> list[ServerEvent]:
        """The events that the next bytes complete."""
        received = await self._body.read()
        if not received:
            raise broke_off(self._head, "its last event is missing")
        return self._reader.feed(received)


class AsyncChat:
    """What a client does with the models that generate text."""

    _http: "AsyncHttp"
    timeout_s: float

    async def chat(
        self,
        messages: str | Sequence[Message],
        *,
        model: str = "chat",
        timeout_s: float | None = None,
        **fields: Unpack[ChatFields],
    ) -> ChatAnswer:
        """The answer to a conversation; a text is one message from the user.

        Raises BadInput, InputTooLong, Unsupported for what the model's backend lacks, TemplateFailed, ModelNotFound,
        Overloaded, DeadlineExceeded, Unreachable.

        >>> answer = await zoo.chat("What is the capital of France?", max_tokens=16, temperature=0)
        >>> answer.model, answer.version, answer.finish_reason in ("stop", "length")
        ('chat', '1', True)
        """
        answer = await self._http.answered(self._asking(_CHAT, chat_body(messages, model, fields), timeout_s))
        return chat_answer(answer, gathered_whole(answer))

    @asynccontextmanager
    async def chat_stream(
        self,
        messages: str | Sequence[Message],
        *,
        model: str = "chat",
        timeout_s: float | None = None,
        **fields: Unpack[ChatFields],
    ) -> AsyncIterator[AsyncTextStream[ChatAnswer]]:
        """The answer of `chat` as it is written, in a block. The budget covers it to its end.

        It is tried again until it begins, and not after.

        >>> async with zoo.chat_stream("Tell me a story.", max_tokens=8) as stream:
        ...     pieces = [text async for text in stream]
        >>> "".join(pieces) == stream.answer.text, stream.answer.usage.completion_tokens
        (True, 8)
        """
        call = self._asking(_CHAT, chat_body(messages, model, fields, stream=True), timeout_s)
        async with self._streaming(call, chat_answer) as stream:
            yield stream

    async def complete(
        self,
        prompt: Prompt,
        *,
        model: str = "chat",
        timeout_s: float | None = None,
        **fields: Unpack[CompletionFields],
    ) -> Completion:
        """What the model writes after a raw prompt, or after each of up to 16: no chat template is applied.

        Raises what `chat` raises.

        >>> made = await zoo.complete("One, two, three,", max_tokens=4, temperature=0)
        >>> made.usage.completion_tokens
        4
        """
        answer = await self._http.answered(
            self._asking(_COMPLETIONS, completion_body(prompt, model, fields), timeout_s)
        )
        return completion(answer, gathered_whole(answer))

    @asynccontextmanager
    async def complete_stream(
        self,
        prompt: Prompt,
        *,
        model: str = "chat",
        timeout_s: float | None = None,
        **fields: Unpack[CompletionFields],
    ) -> AsyncIterator[AsyncTextStream[Completion]]:
        """The answer of `complete` as it is written, in a block, as `chat_stream` does it."""
        call = self._asking(_COMPLETIONS, completion_body(prompt, model, fields, stream=True), timeout_s)
        async with self._streaming(call, completion) as stream:
            yield stream

    def _asking(self, path: str, fields: dict[str, Any], timeout_s: float | None) -> Call:
        """A call whose budget begins now."""
        budget = Budget.of(self.timeout_s if timeout_s is None else timeout_s)
        return Call(path, budget, fields, call_headers(None, None))

    @asynccontextmanager
    async def _streaming(
        self, call: Call, whole: Callable[[Answer, Gathered], Whole]
    ) -> AsyncIterator[AsyncTextStream[Whole]]:
        async with self._http.opened(call) as body:
            if not body.head.headers.get("content-type", "").startswith("text/event-stream"):
                raise unreadable(body.head.url, "it does not stream its answer", body.head.request_id)
            stream = AsyncTextStream(body, whole)
            try:
                yield stream
            finally:
                stream.leave()
