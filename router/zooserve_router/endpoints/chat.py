"""/v1/chat/completions, streamed and not, as OpenAI has it to the letter."""

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from zooserve.catalogue import Catalogue, Model
from zooserve.errors import BadInput
from zooserve_router.chat.ask import Ask, Step
from zooserve_router.chat.asking import ask_of_conversation
from zooserve_router.chat.generation import Conversation, Sampling
from zooserve_router.chat.service import ChatService
from zooserve_router.dispatch import find_model
from zooserve_router.endpoints.answers import Answered, answered
from zooserve_router.endpoints.messages import Message, messages_in
from zooserve_router.endpoints.sampling import choices_asked, refuse_unsupported, sampling_asked, usage_asked
from zooserve_router.payload import Fields, json_fields
from zooserve_router.services import context_of, services_of

__all__ = ["ChatRequest", "routes"]


@dataclass(frozen=True)
class ChatRequest:
    """One parsed and checked request."""

    model: Model
    messages: tuple[Message, ...]
    sampling: Sampling
    max_tokens: int | None
    n: int
    stream: bool
    include_usage: bool

    @classmethod
    def parse(cls, fields: Fields, catalogue: Catalogue) -> "ChatRequest":
        """Raises BadInput or ModelNotFound, naming the field at fault."""
        model = find_model(catalogue, fields.required_text("model"), "chat")
        stream = fields.boolean("stream", default=False)
        parsed = cls(
            model=model,
            messages=tuple(messages_in(fields.required("messages"))),
            sampling=sampling_asked(fields),
            max_tokens=_max_tokens_asked(fields),
            n=choices_asked(fields),
            stream=stream,
            include_usage=usage_asked(fields, stream=stream),
        )
        refuse_unsupported(fields)
        fields.refuse_unknown()
        return parsed

    async def ask(self, service: ChatService) -> Ask:
        """The request in tokens: prompt rendered and counted, answer granted."""
        conversation = Conversation(self.messages, self.sampling, self.n)
        return await ask_of_conversation(service.ready_model(self.model), conversation, self.max_tokens)


def _max_tokens_asked(fields: Fields) -> int | None:
    """`max_completion_tokens`, or its older name."""
    newer = fields.integer("max_completion_tokens", low=1)
    older = fields.integer("max_tokens", low=1)
    if newer is not None and older is not None and newer != older:
        raise BadInput("`max_tokens` and `max_completion_tokens` differ; send one of them.", param="max_tokens")
    return older if newer is None else newer


class ChatShape:
    """How /v1/chat/completions writes an answer; one per request, since id and time are the same throughout."""

    def __init__(self, model: Model) -> None:
        self._common = {
            "id": f"chatcmpl-{secrets.token_hex(14)}",
            "created": int(time.time()),
            "model": model.name,
            "system_fingerprint": f"{model.name}@{model.version}",
        }

    def opening(self, choices: int) -> list[dict[str, Any]]:
        """The chunks before any text: who speaks."""
        return [self._chunk(index, {"role": "assistant", "content": "", "refusal": None}) for index in range(choices)]

    def chunks(self, step: Step) -> list[dict[str, Any]]:
        """The chunks of one step: its text, then its end."""
        text = [self._chunk(step.index, {"content": step.text})] if step.text else []
        end = [self._chunk(step.index, {}, step.finish_reason)] if step.finish_reason else []
        return text + end

    def closing(self, usage: Mapping[str, int]) -> dict[str, Any]:
        """The chunk that carries the usage."""
        return {**self._common, "object": "chat.completion.chunk", "choices": [], "usage": usage}

    def whole(self, choices: Sequence[Answered], usage: Mapping[str, int]) -> dict[str, Any]:
        """The answer in one piece."""
        return {
            **self._common,
            "object": "chat.completion",
            "choices": [
                {
                    "index": index,
                    "message": {"role": "assistant", "content": choice.text, "refusal": None},
                    "logprobs": None,
                    "finish_reason": choice.finish_reason,
                }
                for index, choice in enumerate(choices)
            ],
            "usage": usage,
        }

    def _chunk(self, index: int, delta: Mapping[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return {**self._common, "object": "chat.completion.chunk", "choices": [choice]}


async def create_chat_completion(request: Request) -> Response:
    """POST /v1/chat/completions."""
    services, context = services_of(request), context_of(request)
    with context.record.phase("parse"):
        wanted = ChatRequest.parse(await json_fields(request), services.catalogue)
        context.record.runs(wanted.model, "interactive")
        ask = await wanted.ask(services.chat)
    shape = ChatShape(wanted.model)
    return await answered(services.chat, ask, context, shape, stream=wanted.stream, include_usage=wanted.include_usage)


routes = (Route("/v1/chat/completions", create_chat_completion, methods=["POST"]),)
