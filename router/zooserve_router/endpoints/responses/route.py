"""/v1/responses, streamed and not, as OpenAI has it: text, functions, nothing stored."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from zooserve.errors import RouteNotFound, ServingError
from zooserve_router.chat.ask import Step
from zooserve_router.context import RequestContext
from zooserve_router.endpoints.responses.body import ResponseBody
from zooserve_router.endpoints.responses.items import Event
from zooserve_router.endpoints.responses.request import ResponseRequest, in_own_words
from zooserve_router.payload import json_fields
from zooserve_router.services import context_of, services_of
from zooserve_router.sse import event, streamed

__all__ = ["routes"]


async def create_response(request: Request) -> Response:
    """POST /v1/responses."""
    services, context = services_of(request), context_of(request)
    with context.phase("parse"):
        wanted = ResponseRequest.parse(await json_fields(request), services.lineup(context), request.headers)
        context.record.runs(wanted.model, "interactive")
    with context.phase("template"):
        ask = await wanted.ask(services.chat, services.catalogue)
    body = ResponseBody(wanted.asked, with_logprobs=wanted.conversation.sampling.logprobs is not None)
    steps = _in_own_words(services.chat.answer(ask, context))
    if wanted.stream:
        return await streamed(_events(steps, body, context), context.deadline)
    return Response(orjson.dumps(await _whole(steps, body, context)), media_type="application/json")


async def _in_own_words(steps: AsyncGenerator[Step, None]) -> AsyncGenerator[Step, None]:
    """The steps; what an upstream refuses is refused in the terms of this API."""
    async with aclosing(steps):
        with in_own_words():
            async for step in steps:
                yield step


async def _whole(steps: AsyncGenerator[Step, None], body: ResponseBody, context: RequestContext) -> dict[str, Any]:
    """The response in one piece."""
    async with aclosing(steps):
        async for step in steps:
            for _ in body.written(step):
                pass
    return body.whole(context.record)


async def _events(
    steps: AsyncGenerator[Step, None], body: ResponseBody, context: RequestContext
) -> AsyncGenerator[bytes, None]:
    """The response's events. An error before the first step is raised, a later one fails the response."""
    async with aclosing(steps):
        first = await anext(steps)
        try:
            yield _sent((*body.opening(), *body.written(first)))
            async for step in steps:
                if news := _sent(body.written(step)):
                    yield news
            yield _sent(body.closing(context.record))
        except ServingError as error:
            context.record.failed(error)
            yield _sent(body.failing(error))


def _sent(events: Iterable[Event]) -> bytes:
    """What one step changes goes out together."""
    return b"".join(event(told, name=told["type"]) for told in events)


async def find_response(request: Request) -> Response:
    """Whatever is done with a response after it was sent. Raises RouteNotFound: none is kept."""
    named = request.path_params["response_id"]
    raise RouteNotFound(
        f"Response with id {named[:64]!r} not found: no response is stored here, whatever its `store` said. Keep the "
        "answer of POST /v1/responses, and send its items in `input` to go on.",
        param="response_id",
        code="response_not_found",
    )


routes = (
    Route("/v1/responses", create_response, methods=["POST"]),
    Route("/v1/responses/{response_id}", find_response, methods=["GET", "DELETE"]),
    Route("/v1/responses/{response_id}/cancel", find_response, methods=["POST"]),
    Route("/v1/responses/{response_id}/input_items", find_response, methods=["GET"]),
)
