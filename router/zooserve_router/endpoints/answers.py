"""What both chat routes do with an answer: stream it as events, or fold it into one body."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
from starlette.responses import Response

from zooserve.errors import ServingError
from zooserve_router.chat.ask import Ask, Step
from zooserve_router.chat.service import ChatService
from zooserve_router.context import Record, RequestContext
from zooserve_router.dialects import openai_error
from zooserve_router.sse import DONE, event, streamed

__all__ = ["Answered", "Shape", "answered"]


@dataclass(frozen=True)
class Answered:
    """One whole choice."""

    text: str
    finish_reason: str
    completion_tokens: int


class Shape(Protocol):
    """How a route writes an answer."""

    def opening(self, choices: int) -> list[dict[str, Any]]: ...

    def chunks(self, step: Step) -> list[dict[str, Any]]: ...

    def closing(self, usage: Mapping[str, int]) -> dict[str, Any]: ...

    def whole(self, choices: Sequence[Answered], usage: Mapping[str, int]) -> dict[str, Any]: ...


async def answered(
    service: ChatService, ask: Ask, context: RequestContext, shape: Shape, *, stream: bool, include_usage: bool
) -> Response:
    """The response to this ask. Closing or cancelling it cancels what the leaf does for it."""
    steps = service.answer(ask, context)
    if stream:
        return await streamed(_events(steps, ask, context, shape, include_usage=include_usage), context.deadline)
    choices = await _folded(steps, ask.choices)
    return Response(orjson.dumps(shape.whole(choices, _usage(context.record))), media_type="application/json")


async def _folded(steps: AsyncGenerator[Step, None], choices: int) -> list[Answered]:
    texts: list[list[str]] = [[] for _ in range(choices)]
    ends: dict[int, Step] = {}
    async with aclosing(steps):
        async for step in steps:
            texts[step.index].append(step.text)
            if step.finish_reason is not None:
                ends[step.index] = step
    return [
        Answered("".join(texts[index]), str(ends[index].finish_reason), ends[index].completion_tokens)
        for index in range(choices)
    ]


async def _events(
    steps: AsyncGenerator[Step, None], ask: Ask, context: RequestContext, shape: Shape, *, include_usage: bool
) -> AsyncGenerator[bytes, None]:
    """The answer's events. An error before the first is raised, a later one becomes an event of its own."""
    # Others carry `usage: null` where the last one carries it, so that a client can tell.
    extra: dict[str, None] = {"usage": None} if include_usage else {}
    async with aclosing(steps):
        first = await anext(steps)
        try:
            for chunk in shape.opening(ask.choices):
                yield event({**chunk, **extra})
            async for step in _resumed(first, steps):
                for chunk in shape.chunks(step):
                    yield event({**chunk, **extra})
            if include_usage:
                yield event(shape.closing(_usage(context.record)))
        except ServingError as error:
            context.record.outcome = type(error).__name__
            yield event(openai_error(error))
    yield DONE


async def _resumed(first: Step, later: AsyncGenerator[Step, None]) -> AsyncGenerator[Step, None]:
    yield first
    async for step in later:
        yield step


def _usage(record: Record) -> dict[str, int]:
    """What was counted, by the backend where it counts."""
    return {
        "prompt_tokens": record.input_tokens,
        "completion_tokens": record.output_tokens,
        "total_tokens": record.input_tokens + record.output_tokens,
    }
