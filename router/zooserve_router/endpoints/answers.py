"""What both chat routes do with an answer: stream it as events, or fold it into one body."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson
from starlette.responses import Response

from zooserve.errors import ServingError
from zooserve_router.chat.ask import Ask, Step
from zooserve_router.chat.generation import TokenLogprob, ToolCallPart
from zooserve_router.chat.service import ChatService
from zooserve_router.context import Record, RequestContext
from zooserve_router.dialects import openai_error
from zooserve_router.sse import DONE, event, streamed

__all__ = ["Answered", "AnsweredCall", "Shape", "answered", "bytes_of_token"]


@dataclass
class AnsweredCall:
    """One whole call of a function."""

    id: str = ""
    name: str = ""
    arguments: str = ""

    def add(self, part: ToolCallPart) -> None:
        """What is new of it."""
        self.id = part.id or self.id
        self.name = part.name or self.name
        self.arguments += part.arguments


@dataclass
class Answered:
    """One choice, whole once it has a finish reason."""

    text: str = ""
    finish_reason: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: dict[int, AnsweredCall] = field(default_factory=dict)
    logprobs: list[TokenLogprob] = field(default_factory=list)

    def add(self, step: Step) -> None:
        """What is new of it."""
        self.text += step.text
        self.reasoning += step.reasoning
        self.refusal += step.refusal
        self.logprobs += step.logprobs
        for part in step.tool_calls:
            self.calls.setdefault(part.index, AnsweredCall()).add(part)
        self.finish_reason = step.finish_reason or self.finish_reason


def bytes_of_token(text: str, data: bytes | None = None) -> list[int] | None:
    """A token's bytes; None where nobody tells them and the text cannot: it stands for a part of a character."""
    if data is None and "\ufffd" in text:
        return None
    return list(text.encode() if data is None else data)


class Shape(Protocol):
    """How a route writes an answer."""

    def opening(self, choices: int) -> list[dict[str, Any]]: ...

    def chunks(self, step: Step) -> list[dict[str, Any]]: ...

    def closing(self, usage: Mapping[str, Any]) -> dict[str, Any]: ...

    def whole(self, choices: Sequence[Answered], usage: Mapping[str, Any]) -> dict[str, Any]: ...


async def answered(
    service: ChatService, ask: Ask, context: RequestContext, shape: Shape, *, stream: bool, include_usage: bool
) -> Response:
    """The response to this ask. Closing or cancelling it cancels what the backend does for it."""
    steps = service.answer(ask, context)
    if stream:
        return await streamed(_events(steps, ask, context, shape, include_usage=include_usage), context.deadline)
    choices = await _folded(steps, ask.choices)
    return Response(orjson.dumps(shape.whole(choices, _usage(context.record))), media_type="application/json")


async def _folded(steps: AsyncGenerator[Step, None], choices: int) -> list[Answered]:
    folded = [Answered() for _ in range(choices)]
    async with aclosing(steps):
        async for step in steps:
            folded[step.index].add(step)
    return folded


async def _events(
    steps: AsyncGenerator[Step, None], ask: Ask, context: RequestContext, shape: Shape, *, include_usage: bool
) -> AsyncGenerator[bytes, None]:
    """The answer's events. An error before the first is raised, a later one becomes an event of its own."""
    # Others carry `usage: null` where the last one carries it, so that a client can tell.
    extra: dict[str, None] = {"usage": None} if include_usage else {}
    last = b""
    async with aclosing(steps):
        step: Step | None = await anext(steps)
        try:
            chunks = shape.opening(ask.choices)
            while step is not None:
                # What is there together is sent together: each sending costs more than making its events.
                if chunks := [*chunks, *shape.chunks(step)]:
                    yield b"".join(event({**chunk, **extra}) for chunk in chunks)
                chunks, step = [], await anext(steps, None)
            if include_usage:
                last = event(shape.closing(_usage(context.record)))
        except ServingError as error:
            context.record.failed(error)
            last = event(openai_error(error))
    yield last + DONE


def _usage(record: Record) -> dict[str, Any]:
    """What was counted, by the backend where it counts; details only where it tells them."""
    usage: dict[str, Any] = {
        "prompt_tokens": record.input_tokens,
        "completion_tokens": record.output_tokens,
        "total_tokens": record.input_tokens + record.output_tokens,
    }
    if record.cached_tokens is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": record.cached_tokens}
    if record.reasoning_tokens is not None:
        usage["completion_tokens_details"] = {"reasoning_tokens": record.reasoning_tokens}
    return usage
