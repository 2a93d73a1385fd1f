"""/v1/chat/completions, streamed and not, as OpenAI has it to the letter."""

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from zooserve.catalogue import Model
from zooserve.errors import BadInput
from zooserve_router.chat.ask import Ask, Step
from zooserve_router.chat.asking import ask_of_conversation
from zooserve_router.chat.generation import Conversation, TokenLogprob, ToolCallPart
from zooserve_router.chat.service import ChatService
from zooserve_router.endpoints.answers import Answered, answered, bytes_of_token
from zooserve_router.endpoints.asked import constraint_asked, parallel_calls_asked, tool_choice_asked, tools_asked
from zooserve_router.endpoints.extras import extras_asked, forwarded_headers
from zooserve_router.endpoints.features import SEED, Need, needs_of, refuse_lacking
from zooserve_router.endpoints.messages import messages_in
from zooserve_router.endpoints.sampling import (
    choices_asked,
    logprobs_asked,
    refuse_unknown_tokens,
    sampling_asked,
    usage_asked,
)
from zooserve_router.lineup import Lineup
from zooserve_router.payload import Fields, json_fields
from zooserve_router.services import context_of, services_of

__all__ = ["ChatRequest", "routes"]


@dataclass(frozen=True)
class ChatRequest:
    """One parsed and checked request."""

    model: Model
    conversation: Conversation
    max_tokens: int | None
    stream: bool
    include_usage: bool
    service_tier: str | None
    """Where all are served alike: the tier that a request which names one is told it got."""

    @classmethod
    def parse(cls, fields: Fields, lineup: Lineup, headers: Mapping[str, str]) -> "ChatRequest":
        """Raises BadInput or ModelNotFound, naming the field at fault."""
        model = lineup.find_model(fields.required_text("model"), "chat")
        stream = fields.boolean("stream", default=False)
        parsed = cls(
            model=model,
            conversation=_conversation(fields, model, headers),
            max_tokens=_max_tokens_asked(fields),
            stream=stream,
            include_usage=usage_asked(fields, stream=stream),
            service_tier="default" if fields.raw("service_tier") and not model.chat_backend.is_upstream else None,
        )
        fields.refuse_unknown()
        refuse_lacking(_needs(fields, parsed.conversation), model, lineup.catalogue)
        return parsed

    async def ask(self, service: ChatService) -> Ask:
        """The request in tokens: prompt rendered and counted, answer granted."""
        chat = service.ready_model(self.model)
        refuse_unknown_tokens(self.conversation.sampling.logit_bias, chat.tokenizer)
        return await ask_of_conversation(chat, self.conversation, self.max_tokens)


def _conversation(fields: Fields, model: Model, headers: Mapping[str, str]) -> Conversation:
    tools, choice = tool_choice_asked(fields, tools_asked(fields))
    return Conversation(
        messages=tuple(messages_in(fields.required("messages"))),
        sampling=replace(sampling_asked(fields), logprobs=logprobs_asked(fields)),
        n=choices_asked(fields),
        constraint=constraint_asked(fields),
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=parallel_calls_asked(fields),
        passed_on=extras_asked(fields, model),
        headers=forwarded_headers(headers, model.chat_backend),
        cache_key=fields.text("prompt_cache_key"),
    )


def _needs(fields: Fields, wanted: Conversation) -> Iterator[tuple[str, Need]]:
    yield from needs_of(wanted)
    if fields.raw("seed") is not None:
        yield "seed", SEED


def _max_tokens_asked(fields: Fields) -> int | None:
    """`max_completion_tokens`, or its older name."""
    newer = fields.integer("max_completion_tokens", low=1)
    older = fields.integer("max_tokens", low=1)
    if newer is not None and older is not None and newer != older:
        raise BadInput(
            "`max_tokens` and `max_completion_tokens` differ; send one of them.",
            param="max_tokens",
            code="invalid_parameter_combination",
        )
    return older if newer is None else newer


class ChatShape:
    """How /v1/chat/completions writes an answer; one per request, since id and time are the same throughout."""

    def __init__(self, model: Model, *, with_logprobs: bool = False, service_tier: str | None = None) -> None:
        self._with_logprobs = with_logprobs
        self._common = {
            "id": f"chatcmpl-{secrets.token_hex(14)}",
            "created": int(time.time()),
            "model": model.public_name,
            "system_fingerprint": f"{model.name}@{model.version}",
            **({} if service_tier is None else {"service_tier": service_tier}),
        }

    def opening(self, choices: int) -> list[dict[str, Any]]:
        """The chunks before any text: who speaks."""
        return [self._chunk(index, {"role": "assistant", "content": "", "refusal": None}) for index in range(choices)]

    def chunks(self, step: Step) -> list[dict[str, Any]]:
        """The chunks of one step: what was thought, then said, then called; its end comes last."""
        logprobs = _logprobs(step.logprobs) if self._with_logprobs and step.logprobs else None
        chunks = []
        if step.reasoning:
            chunks.append(self._chunk(step.index, {"reasoning_content": step.reasoning}))
        if step.text or logprobs:
            chunks.append(self._chunk(step.index, {"content": step.text}, logprobs=logprobs))
        if step.refusal:
            chunks.append(self._chunk(step.index, {"refusal": step.refusal}))
        if step.tool_calls:
            chunks.append(self._chunk(step.index, {"tool_calls": [_call_delta(part) for part in step.tool_calls]}))
        if step.finish_reason:
            chunks.append(self._chunk(step.index, {}, step.finish_reason))
        return chunks

    def closing(self, usage: Mapping[str, Any]) -> dict[str, Any]:
        """The chunk that carries the usage."""
        return {**self._common, "object": "chat.completion.chunk", "choices": [], "usage": usage}

    def whole(self, choices: Sequence[Answered], usage: Mapping[str, Any]) -> dict[str, Any]:
        """The answer in one piece."""
        return {
            **self._common,
            "object": "chat.completion",
            "choices": [
                {
                    "index": index,
                    "message": _message(choice),
                    "logprobs": _logprobs(choice.logprobs) if self._with_logprobs else None,
                    "finish_reason": choice.finish_reason,
                }
                for index, choice in enumerate(choices)
            ],
            "usage": usage,
        }

    def _chunk(
        self,
        index: int,
        delta: Mapping[str, Any],
        finish_reason: str | None = None,
        logprobs: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        return {**self._common, "object": "chat.completion.chunk", "choices": [choice]}


def _message(choice: Answered) -> dict[str, Any]:
    """What the assistant said; content is null where it only called or refused."""
    said_otherwise = bool(choice.calls or choice.refusal)
    message: dict[str, Any] = {
        "role": "assistant",
        "content": None if said_otherwise and not choice.text else choice.text,
        "refusal": choice.refusal or None,
    }
    if choice.reasoning:
        message["reasoning_content"] = choice.reasoning
    if choice.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for _, call in sorted(choice.calls.items())
        ]
    return message


def _call_delta(part: ToolCallPart) -> dict[str, Any]:
    """What is new of a call: its id, type and name come with its first part."""
    if part.name is None:
        return {"index": part.index, "function": {"arguments": part.arguments}}
    function = {"name": part.name, "arguments": part.arguments}
    return {"index": part.index, "id": part.id, "type": "function", "function": function}


def _logprobs(tokens: Sequence[TokenLogprob]) -> dict[str, Any]:
    content = [
        {
            **_token(token.token, token.logprob, token.data),
            "top_logprobs": [_token(text, logprob) for text, logprob in token.top],
        }
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def _token(text: str, logprob: float, data: bytes | None = None) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": bytes_of_token(text, data)}


async def create_chat_completion(request: Request) -> Response:
    """POST /v1/chat/completions."""
    services, context = services_of(request), context_of(request)
    with context.phase("parse"):
        wanted = ChatRequest.parse(await json_fields(request), services.lineup(context), request.headers)
        context.record.runs(wanted.model, "interactive")
    with context.phase("template"):
        ask = await wanted.ask(services.chat)
    with_logprobs = wanted.conversation.sampling.logprobs is not None
    shape = ChatShape(wanted.model, with_logprobs=with_logprobs, service_tier=wanted.service_tier)
    return await answered(services.chat, ask, context, shape, stream=wanted.stream, include_usage=wanted.include_usage)


routes = (Route("/v1/chat/completions", create_chat_completion, methods=["POST"]),)
