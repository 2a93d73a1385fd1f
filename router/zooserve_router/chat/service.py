"""Chat: admission, and the answer as it comes, however it ends."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field

from zooserve.catalogue import Model
from zooserve.errors import BackendUnavailable, DeadlineExceeded
from zooserve.leaf.stops import StopScanner
from zooserve_observability.metrics import RouterMetrics
from zooserve_router.chat.ask import Ask, Call, Step
from zooserve_router.chat.asking import tokens_of
from zooserve_router.chat.generation import Generation, Piece, Timings, Usage
from zooserve_router.chat.models import ChatModel
from zooserve_router.context import RequestContext
from zooserve_router.fanout import merged
from zooserve_router.readiness import Readiness

__all__ = ["ChatService"]

# A cancelled request leaves the engine within one step, 11 to 200 ms (measured), and nothing says when: its tokens
# stay admitted a little longer than that.
_CANCEL_SETTLES_S = 0.25


@dataclass
class _Run:
    """How far an answer got."""

    texts: dict[int, str] = field(default_factory=dict)
    """What was written of each choice."""
    finished: set[int] = field(default_factory=set)
    """The choices whose end the caller was given."""
    ended_calls: int = 0
    """Calls that the backend ended by itself."""


class ChatService:
    """Admits chats and runs them on their backends."""

    def __init__(
        self,
        models: Mapping[str, ChatModel],
        readiness: Readiness,
        metrics: RouterMetrics,
        cancel_settles_s: float = _CANCEL_SETTLES_S,
    ) -> None:
        self._models = models
        self._readiness = readiness
        self._metrics = metrics
        self._cancel_settles_s = cancel_settles_s

    def ready_model(self, model: Model) -> ChatModel:
        """What the router has for this model. Raises BackendUnavailable unless it is ready."""
        self._readiness.require(model)
        if model.name not in self._models:
            raise BackendUnavailable(f"{model.name} is not ready: its tokenizer or template is missing.", param="model")
        return self._models[model.name]

    async def answer(self, ask: Ask, context: RequestContext) -> AsyncGenerator[Step, None]:
        """All choices, as they come. Raises Overloaded before anything is sent.

        However it ends, what the backend still works on is cancelled, and admitted until the backend has ended it.
        """
        ask.chat.budget.take(ask.held_tokens)
        context.record.input_tokens = ask.prompt_tokens
        run = _Run()
        try:
            async with aclosing(merged(self._calls(ask, run, context))) as steps:
                while True:
                    async with context.deadline.enforced():
                        step = await anext(steps, None)
                    if step is None:
                        break
                    if step.finish_reason is not None:
                        run.finished.add(step.index)
                        context.record.output_tokens += step.completion_tokens
                    yield step
        except BackendUnavailable as fault:
            self._readiness.doubt(ask.chat.model, fault)
            raise
        except DeadlineExceeded:
            if not run.texts:
                self._readiness.unanswered(ask.chat.model, _served_by(ask.chat.model), context.budget_s)
            self._count_waste(ask, run, context)
            raise
        except (GeneratorExit, asyncio.CancelledError):  # the caller left, or stopped reading until the deadline
            self._count_waste(ask, run, context)
            raise
        finally:
            context.record.output_tokens += self._unfinished_tokens(ask, run)
            self._give_back(ask, everything_ended=run.ended_calls == len(ask.calls))

    def _calls(self, ask: Ask, run: _Run, context: RequestContext) -> list[AsyncGenerator[Step, None]]:
        started, first = [], 0
        for call in ask.calls:
            started.append(self._call(ask, call, first, run, context))
            first += call.choices
        return started

    async def _call(
        self, ask: Ask, call: Call, first: int, run: _Run, context: RequestContext
    ) -> AsyncGenerator[Step, None]:
        """The steps of the choices from `first` on, which one call to the backend makes."""
        model = ask.chat.model
        # An upstream matches stop strings itself; a leaf may let half of one out while it streams.
        scanner = StopScanner(call.work.sampling.stop if isinstance(call.work, Generation) else ())
        pieces = ask.chat.backend.generate(call.work, context.deadline.remaining_s())
        if call.reader is not None:
            pieces = call.reader(pieces)
        async with aclosing(pieces):
            async for piece in pieces:
                self._readiness.answered(_served_by(model))
                if piece.text and not run.texts:
                    self._first_token(model, context)
                _note_timings(piece.timings, context)
                step = self._step(ask, first + piece.choice, piece, scanner, run)
                if step is not None:
                    yield step
                if scanner.matched is not None:
                    run.ended_calls += piece.finish_reason is not None
                    return
                if piece.usage is not None:
                    _note_usage(piece.usage, context)
        run.ended_calls += 1

    def _step(self, ask: Ask, index: int, piece: Piece, scanner: StopScanner, run: _Run) -> Step | None:
        """What the caller gets of a piece; None where it says nothing new."""
        text = scanner.feed(piece.text)
        if piece.finish_reason is not None and scanner.matched is None:
            text += scanner.flush()
        run.texts[index] = run.texts.get(index, "") + text
        reason = "stop" if scanner.matched is not None else piece.finish_reason
        written = 0 if reason is None else self._written(ask, run.texts[index], reason)
        step = Step(index, text, reason, written, piece.tool_calls, piece.logprobs, piece.reasoning, piece.refusal)
        return None if step == Step(index) else step

    def _written(self, ask: Ask, text: str, reason: str) -> int:
        """Tokens of a finished answer: the whole grant where that ended it, else the text's own."""
        if reason == "length":
            return ask.granted_tokens
        return min(tokens_of(ask.chat, text), ask.granted_tokens)

    def _first_token(self, model: Model, context: RequestContext) -> None:
        spent_s = time.monotonic() - context.started
        context.record.phases_s.setdefault("first_token", spent_s)
        self._metrics.first_token(model.name, str(model.version), context.record.slo_class, spent_s)

    def _unfinished_tokens(self, ask: Ask, run: _Run) -> int:
        """Tokens written of choices whose end the caller did not get."""
        return sum(tokens_of(ask.chat, text) for index, text in run.texts.items() if index not in run.finished)

    def _count_waste(self, ask: Ask, run: _Run, context: RequestContext) -> None:
        model, written = ask.chat.model, self._unfinished_tokens(ask, run)
        self._metrics.wasted(model.name, str(model.version), context.record.slo_class, written)

    def _give_back(self, ask: Ask, *, everything_ended: bool) -> None:
        if everything_ended:
            ask.chat.budget.give_back(ask.held_tokens)
        else:
            asyncio.get_running_loop().call_later(self._cancel_settles_s, ask.chat.budget.give_back, ask.held_tokens)


def _served_by(model: Model) -> str:
    """What hangs when nothing answers. Chat is always interactive: a stream keeps its slot whatever its class."""
    return model.name if model.chat_backend.is_upstream else model.triton_model("interactive")


def _note_usage(usage: Usage, context: RequestContext) -> None:
    context.record.counted(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, usage.reasoning_tokens)


def _note_timings(timings: Timings | None, context: RequestContext) -> None:
    """Put the engine's phases beside the router's own; of several choices the longest."""
    if timings is not None:
        phases = context.record.phases_s
        engine = {"queue": timings.queue_s, "prefill": timings.prefill_s, "decode": timings.decode_s}
        phases.update({name: max(spent, phases.get(name, 0.0)) for name, spent in engine.items()})
