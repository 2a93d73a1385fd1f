"""/v1/completions: raw prompts, no template, as OpenAI has it.

The caller writes the whole prompt, control tokens included.
"""

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from zooserve.catalogue import Model
from zooserve.errors import Unsupported
from zooserve_router.chat.ask import Ask, Step, calls_of_prompts
from zooserve_router.chat.generation import Conversation, Generation, Sampling, TokenLogprob
from zooserve_router.chat.grants import granted_tokens
from zooserve_router.chat.models import ChatModel
from zooserve_router.chat.service import ChatService
from zooserve_router.endpoints.answers import Answered, answered
from zooserve_router.endpoints.extras import bookkeeping_asked, forwarded_headers, passed_on
from zooserve_router.endpoints.features import COMPLETIONS, SEED, Need, needs_of, refuse_lacking
from zooserve_router.endpoints.prompts import PromptInput, echo_of, prompt_of, prompts_in
from zooserve_router.endpoints.sampling import (
    choices_asked,
    refuse_unknown_tokens,
    sampling_asked,
    usage_asked,
)
from zooserve_router.lineup import Lineup
from zooserve_router.payload import Fields, json_fields
from zooserve_router.services import context_of, services_of

__all__ = ["CompletionRequest", "routes"]

_DEFAULT_MAX_TOKENS = 16
"""OpenAI's own default for this route."""
_MAX_LOGPROBS = 5


@dataclass(frozen=True)
class CompletionRequest:
    """One parsed and checked request."""

    model: Model
    prompts: tuple[PromptInput, ...]
    sampling: Sampling
    max_tokens: int | None
    n: int
    echo: bool
    stream: bool
    include_usage: bool
    labels: Mapping[str, Any]
    headers: Mapping[str, str]
    """The caller's that the model's upstream is to see."""

    @classmethod
    def parse(cls, fields: Fields, lineup: Lineup, headers: Mapping[str, str]) -> "CompletionRequest":
        """Raises BadInput or ModelNotFound, naming the field at fault."""
        model = lineup.find_model(fields.required_text("model"), "chat")
        prompts = prompts_in(fields.required("prompt"), model.limits.max_tokens)
        stream = fields.boolean("stream", default=False)
        parsed = cls(
            model=model,
            prompts=prompts,
            sampling=replace(sampling_asked(fields), logprobs=fields.integer("logprobs", low=0, high=_MAX_LOGPROBS)),
            max_tokens=fields.integer("max_tokens", low=1),
            n=choices_asked(fields, len(prompts)),
            echo=fields.boolean("echo", default=False),
            stream=stream,
            include_usage=usage_asked(fields, stream=stream),
            labels=bookkeeping_asked(fields),
            headers=forwarded_headers(headers, model.chat_backend),
        )
        _refuse_other_candidates(fields, parsed.n)
        refuse_lacking(_needs(fields, parsed.sampling), model, lineup.catalogue)
        fields.refuse_unknown()
        if parsed.echo and parsed.sampling.logprobs is not None:
            raise Unsupported(
                "`logprobs` with `echo` is not available here: there are none of the prompt's tokens.", param="logprobs"
            )
        return parsed

    async def ask(self, service: ChatService) -> Ask:
        """The request in tokens: prompts counted, answers granted, the same for all since they share one bound."""
        chat = service.ready_model(self.model)
        refuse_unknown_tokens(self.sampling.logit_bias, chat.tokenizer)
        prompts = tuple([await prompt_of(chat, prompt) for prompt in self.prompts])
        longest = max(prompt.tokens for prompt in prompts)
        granted = granted_tokens(self.model, longest, self.max_tokens, _DEFAULT_MAX_TOKENS, "prompt")
        asked = Generation(
            "",
            replace(self.sampling, max_tokens=granted),
            lora=chat.model.adapter,
            cache_key=self.labels.get("prompt_cache_key"),
            passed_on=passed_on(self.model, {"user": self.labels.get("user")}),  # the one label that this API has
            headers=self.headers,
        )
        calls = calls_of_prompts(prompts, asked, self.n)
        return Ask(chat, calls, sum(prompt.tokens for prompt in prompts), granted, "text_completion")

    def echoed(self, chat: ChatModel) -> list[str]:
        """What each choice starts with."""
        texts = [echo_of(chat, prompt) if self.echo else "" for prompt in self.prompts]
        return [text for text in texts for _ in range(self.n)]


def _needs(fields: Fields, sampling: Sampling) -> Iterator[tuple[str, Need]]:
    yield "model", COMPLETIONS
    yield from needs_of(Conversation((), sampling))
    if fields.raw("seed") is not None:
        yield "seed", SEED


def _refuse_other_candidates(fields: Fields, n: int) -> None:
    best_of = fields.integer("best_of", low=1)
    if best_of is not None and best_of != n:
        raise Unsupported(
            f"`best_of` is {best_of}; ranking candidates is not available here, leave it out or send `n`.",
            param="best_of",
        )
    if fields.text("suffix"):
        raise Unsupported("`suffix` is not available: this model does not fill in the middle.", param="suffix")


class CompletionShape:
    """How /v1/completions writes an answer. `echoed` is what each choice starts with."""

    def __init__(self, model: Model, echoed: Sequence[str], *, with_logprobs: bool = False) -> None:
        self._echoed = echoed
        self._with_logprobs = with_logprobs
        self._written = [len(text) for text in echoed]
        """Characters of each choice so far: where its next token begins."""
        self._common = {
            "id": f"cmpl-{secrets.token_hex(14)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model.public_name,
            "system_fingerprint": f"{model.name}@{model.version}",
        }

    def opening(self, choices: int) -> list[dict[str, Any]]:
        """The chunks before any text: the prompts, where they are echoed."""
        return [self._chunk(index, text) for index, text in enumerate(self._echoed) if text]

    def chunks(self, step: Step) -> list[dict[str, Any]]:
        """The chunk of one step."""
        return [self._chunk(step.index, step.text, step.finish_reason, step.logprobs)]

    def closing(self, usage: Mapping[str, Any]) -> dict[str, Any]:
        """The chunk that carries the usage."""
        return {**self._common, "choices": [], "usage": usage}

    def whole(self, choices: Sequence[Answered], usage: Mapping[str, Any]) -> dict[str, Any]:
        """The answer in one piece."""
        return {
            **self._common,
            "choices": [
                self._choice(index, self._echoed[index] + choice.text, choice.finish_reason, choice.logprobs)
                for index, choice in enumerate(choices)
            ],
            "usage": usage,
        }

    def _chunk(
        self, index: int, text: str, finish_reason: str | None = None, tokens: Sequence[TokenLogprob] = ()
    ) -> dict[str, Any]:
        return {**self._common, "choices": [self._choice(index, text, finish_reason, tokens)]}

    def _choice(
        self, index: int, text: str, finish_reason: str | None, tokens: Sequence[TokenLogprob]
    ) -> dict[str, Any]:
        logprobs = self._logprobs(index, tokens) if self._with_logprobs and tokens else None
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}

    def _logprobs(self, index: int, tokens: Sequence[TokenLogprob]) -> dict[str, Any]:
        """This route's own form: a list for each thing told, and where in the text each token begins."""
        offsets = []
        for token in tokens:
            offsets.append(self._written[index])
            self._written[index] += len(token.token)
        return {
            "tokens": [token.token for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [dict(token.top) for token in tokens],
            "text_offset": offsets,
        }


async def create_completion(request: Request) -> Response:
    """POST /v1/completions."""
    services, context = services_of(request), context_of(request)
    with context.phase("parse"):
        wanted = CompletionRequest.parse(await json_fields(request), services.lineup(context), request.headers)
        context.record.runs(wanted.model, "interactive")
    with context.phase("template"):
        ask = await wanted.ask(services.chat)
        echoed = wanted.echoed(ask.chat)
    shape = CompletionShape(wanted.model, echoed, with_logprobs=wanted.sampling.logprobs is not None)
    return await answered(services.chat, ask, context, shape, stream=wanted.stream, include_usage=wanted.include_usage)


routes = (Route("/v1/completions", create_completion, methods=["POST"]),)
