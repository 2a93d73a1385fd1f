"""Chat: messages to a prompt of counted tokens, a grant of answer tokens, admission, and the answer as it comes.

The leaf knows neither templates nor token counts nor who may run: all three are decided here, before it is asked.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from zooserve.catalogue import Catalogue, Model
from zooserve.errors import BackendUnavailable, DeadlineExceeded, InputTooLong
from zooserve.leaf.stops import StopScanner
from zooserve_observability.metrics import RouterMetrics
from zooserve_router.admission import Budget
from zooserve_router.context import RequestContext
from zooserve_router.fanout import merged
from zooserve_router.generation import Generation, Piece, Timings
from zooserve_router.readiness import Probe, Readiness
from zooserve_router.templates import ChatTemplate
from zooserve_router.tokens import ChatTokenizer, load_tokenizer

__all__ = [
    "Ask",
    "ChatModel",
    "ChatService",
    "Generator",
    "Prompt",
    "Step",
    "chat_probe",
    "granted_tokens",
    "load_chat_models",
]

# A cancelled request leaves the engine within one step, 11 to 200 ms (measured), and nothing says when: its tokens
# stay admitted a little longer than that.
_CANCEL_SETTLES_S = 0.25
_PROBE_TIMEOUT_S = 30.0
_log = logging.getLogger(__name__)


class Generator(Protocol):
    """What generates, over there. Closing what `generate` returns cancels the generation at once."""

    def generate(self, model: str, generation: Generation, timeout_s: float) -> AsyncGenerator[Piece, None]: ...


@dataclass(frozen=True)
class ChatModel:
    """A chat model of the catalogue with what the router needs to speak for it."""

    model: Model
    template: ChatTemplate
    tokenizer: ChatTokenizer
    budget: Budget


@dataclass(frozen=True)
class Prompt:
    """A rendered prompt and its exact length."""

    text: str
    tokens: int


@dataclass(frozen=True)
class Ask:
    """Everything one request wants: every prompt answered `n` times."""

    chat: ChatModel
    prompts: tuple[Prompt, ...]
    sampling: Generation
    """How to sample; its prompt is replaced by each of `prompts`, its seed by one per choice."""
    n: int = 1

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts, each counted once."""
        return sum(prompt.tokens for prompt in self.prompts)

    @property
    def held_tokens(self) -> int:
        """KV tokens that this may come to occupy."""
        return sum(prompt.tokens + self.sampling.max_tokens for prompt in self.prompts) * self.n

    @property
    def choices(self) -> int:
        """How many answers this makes."""
        return len(self.prompts) * self.n

    def generations(self) -> list[Generation]:
        """One per choice, in the order of their index. Each has its own seed, so that no two say the same."""
        return [
            replace(self.sampling, prompt=prompt.text, seed=(self.sampling.seed + choice) % 2**63)
            for prompt in self.prompts
            for choice in range(self.n)
        ]


@dataclass(frozen=True)
class Step:
    """What is new of one choice. The last step of a choice has its finish reason and its length."""

    index: int
    text: str
    finish_reason: str | None = None
    completion_tokens: int = 0


@dataclass
class _Run:
    """How far an answer got."""

    texts: dict[int, str] = field(default_factory=dict)
    """What was written of each choice."""
    finished: set[int] = field(default_factory=set)
    """The choices whose end the caller was given."""
    ended_by_leaf: int = 0


class ChatService:
    """Renders, counts, admits and runs chats on a generator."""

    def __init__(
        self,
        models: Mapping[str, ChatModel],
        generator: Generator,
        readiness: Readiness,
        metrics: RouterMetrics,
        cancel_settles_s: float = _CANCEL_SETTLES_S,
    ) -> None:
        self._models = models
        self._generator = generator
        self._readiness = readiness
        self._metrics = metrics
        self._cancel_settles_s = cancel_settles_s

    def ready_model(self, model: Model) -> ChatModel:
        """What the router has for this model. Raises BackendUnavailable unless it is ready."""
        self._readiness.require(model)
        if model.name not in self._models:
            raise BackendUnavailable(f"{model.name} is not ready: its tokenizer or template is missing.", param="model")
        return self._models[model.name]

    async def prompt_of_messages(self, chat: ChatModel, messages: Sequence[Mapping[str, Any]]) -> Prompt:
        """The messages as the model wants to read them.

        Raises BadInput for content that would forge turns, TemplateFailed, or InputTooLong.
        """
        limit = chat.model.limits.max_tokens
        most_characters = limit * chat.tokenizer.longest_token_bytes
        if sum(len(str(message.get("content", ""))) for message in messages) > most_characters:
            raise InputTooLong(
                f"This model's maximum context length is {limit} tokens; your messages are far longer. Shorten them.",
                param="messages",
            )
        for index, message in enumerate(messages):
            for name in ("content", "name"):
                chat.tokenizer.refuse_control_tokens(str(message.get(name, "")), f"messages[{index}].{name}")
        whole = _with_system_prompt(messages, chat.model.default_system_prompt)
        text = chat.template.render(whole, max_characters=most_characters)
        return await self.prompt_of_text(chat, text, param="messages")

    async def prompt_of_text(self, chat: ChatModel, text: str, param: str) -> Prompt:
        """A prompt as it stands. Raises InputTooLong."""
        return Prompt(text, await chat.tokenizer.count_prompt(text, chat.model.limits.max_tokens, param))

    async def answer(self, ask: Ask, context: RequestContext) -> AsyncGenerator[Step, None]:
        """All choices, as they come. Raises Overloaded before anything is sent.

        However it ends, what the leaf still works on is cancelled, and admitted until the leaf has ended it.
        """
        generations = ask.generations()
        ask.chat.budget.take(ask.held_tokens)
        context.record.input_tokens = ask.prompt_tokens
        run = _Run()
        try:
            choices = [self._choice(ask, index, generations[index], run, context) for index in range(len(generations))]
            async with aclosing(merged(choices)) as steps:
                while len(run.finished) < len(generations):
                    async with context.deadline.enforced():
                        step = await anext(steps)
                    if step.finish_reason is not None:
                        run.finished.add(step.index)
                        context.record.output_tokens += step.completion_tokens
                    yield step
        except BackendUnavailable as fault:
            self._readiness.doubt(ask.chat.model, fault)
            raise
        except DeadlineExceeded:
            if not run.texts:
                self._readiness.unanswered(ask.chat.model, _triton_model(ask.chat.model), context.budget_s)
            self._count_waste(ask, run, context)
            raise
        except (GeneratorExit, asyncio.CancelledError):  # the caller left, or stopped reading until the deadline
            self._count_waste(ask, run, context)
            raise
        finally:
            context.record.output_tokens += self._unfinished_tokens(ask, run)
            self._give_back(ask, everything_ended=run.ended_by_leaf == len(generations))

    async def _choice(
        self, ask: Ask, index: int, generation: Generation, run: _Run, context: RequestContext
    ) -> AsyncGenerator[Step, None]:
        scanner = StopScanner(generation.stop)
        model = ask.chat.model
        pieces = self._generator.generate(_triton_model(model), generation, context.deadline.remaining_s())
        async with aclosing(pieces):
            async for piece in pieces:
                self._readiness.answered(_triton_model(model))
                if piece.text and not run.texts:
                    self._first_token(model, context)
                _note_timings(piece.timings, context)
                run.ended_by_leaf += piece.finish_reason is not None
                text = scanner.feed(piece.text)
                if piece.finish_reason is not None and scanner.matched is None:
                    text += scanner.flush()
                run.texts[index] = run.texts.get(index, "") + text
                reason = "stop" if scanner.matched is not None else piece.finish_reason
                if reason is not None:
                    yield Step(index, text, reason, self._written(ask, run.texts[index], reason))
                    return
                if text:
                    yield Step(index, text)

    def _written(self, ask: Ask, text: str, reason: str) -> int:
        """Tokens of a finished answer: the whole grant where that ended it, else the text's own."""
        granted = ask.sampling.max_tokens
        return granted if reason == "length" else min(ask.chat.tokenizer.count(text), granted)

    def _first_token(self, model: Model, context: RequestContext) -> None:
        spent_s = time.monotonic() - context.started
        context.record.phases_s.setdefault("first_token", spent_s)
        self._metrics.first_token(model.name, str(model.version), context.record.slo_class, spent_s)

    def _unfinished_tokens(self, ask: Ask, run: _Run) -> int:
        """Tokens written of choices whose end the caller did not get."""
        return sum(ask.chat.tokenizer.count(text) for index, text in run.texts.items() if index not in run.finished)

    def _count_waste(self, ask: Ask, run: _Run, context: RequestContext) -> None:
        model, written = ask.chat.model, self._unfinished_tokens(ask, run)
        self._metrics.wasted(model.name, str(model.version), context.record.slo_class, written)

    def _give_back(self, ask: Ask, *, everything_ended: bool) -> None:
        if everything_ended:
            ask.chat.budget.give_back(ask.held_tokens)
        else:
            asyncio.get_running_loop().call_later(self._cancel_settles_s, ask.chat.budget.give_back, ask.held_tokens)


def _triton_model(model: Model) -> str:
    """Chat is always interactive: a stream keeps its slot whatever its class."""
    return model.triton_model("interactive")


def _note_timings(timings: Timings | None, context: RequestContext) -> None:
    """Put the engine's phases beside the router's own; of several choices the longest."""
    if timings is not None:
        phases = context.record.phases_s
        engine = {"queue": timings.queue_s, "prefill": timings.prefill_s, "decode": timings.decode_s}
        phases.update({name: max(spent, phases.get(name, 0.0)) for name, spent in engine.items()})


def granted_tokens(model: Model, prompt_tokens: int, asked: int | None, default: int | None, param: str) -> int:
    """How long the answer may get: what was asked, clamped by the catalogue; unasked, the default that still fits.

    Raises InputTooLong when prompt and answer do not fit together.
    """
    window = model.limits.max_tokens
    ceiling = model.limits.max_completion_tokens or window
    room = window - prompt_tokens
    wanted = min(asked if asked is not None else default or ceiling, ceiling)
    if room >= (wanted if asked is not None else 1):
        return min(wanted, room)
    raise InputTooLong(
        f"This model's maximum context length is {window} tokens. However, you requested {prompt_tokens + wanted} "
        f"tokens ({prompt_tokens} in the {param}, {wanted} in the completion). Shorten the {param} or ask for a "
        "shorter completion.",
        param=param,
    )


def load_chat_models(catalogue: Catalogue, repository: Path, replicas: int) -> Mapping[str, ChatModel]:
    """The chat models whose files are there and can be used; one that is missing shows in that model's readiness.

    Each replica gets its share of a model's KV budget.
    """
    loaded: dict[str, ChatModel] = {}
    for model in catalogue.of_task("chat"):
        try:
            loaded[model.name] = _load(model, repository, replicas)
        except Exception:  # whatever is wrong with one checkpoint's files must not take the other models down
            _log.exception("%s: its tokenizer or chat template cannot be used", model.name)
    return loaded


def _load(model: Model, repository: Path, replicas: int) -> ChatModel:
    template = ChatTemplate.read(repository / str(model.chat_template))
    tokenizer = load_tokenizer(repository / str(model.tokenizer), template.source)
    return ChatModel(model, template, tokenizer, Budget(model.name, (model.kv_budget_tokens or 0) // replicas))


def chat_probe(model: Model, models: Mapping[str, ChatModel], generator: Generator) -> Probe:
    """A probe that has the model write one real token."""

    async def probe() -> None:
        if model.name not in models:
            raise BackendUnavailable(
                f"the tokenizer or chat template of {model.name} is missing or broken; run `zooserve fetch` and restart"
            )
        generation = Generation(prompt="Hello", max_tokens=1, temperature=0.0)
        pieces = generator.generate(_triton_model(model), generation, _PROBE_TIMEOUT_S)
        async with aclosing(pieces):
            async for _ in pieces:
                pass

    return probe


def _with_system_prompt(messages: Sequence[Mapping[str, Any]], default: str | None) -> list[dict[str, Any]]:
    whole = [dict(message) for message in messages]
    if default is not None and not any(message["role"] == "system" for message in whole):
        return [{"role": "system", "content": default}, *whole]
    return whole
