"""Chat: admission, and the answer as it comes, however it ends."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial

from zooserve.catalogue import Model
from zooserve.errors import BackendFailed, BackendUnavailable, DeadlineExceeded, Overloaded, ServingError
from zooserve.leaf.stops import StopScanner
from zooserve_observability.chat_metrics import WasteReason
from zooserve_observability.metrics import RouterMetrics
from zooserve_router.breaker import BREAKER_OPEN
from zooserve_router.chat.account import Account
from zooserve_router.chat.ask import Ask, Call, Step
from zooserve_router.chat.generation import Generation, Piece
from zooserve_router.chat.held import Held
from zooserve_router.chat.models import ChatModel
from zooserve_router.chat.run import Run, says_more_than_text, says_something
from zooserve_router.chat.spans import begun_span, below_span, end_spans
from zooserve_router.chat.token_gate import TokenGate
from zooserve_router.context import RequestContext
from zooserve_router.fanout import merged
from zooserve_router.readiness import Readiness
from zooserve_router.waits import Waits

__all__ = ["ChatService"]

# A cancelled request leaves the engine within one step, 11 to 200 ms (measured), and nothing says when: its tokens
# stay admitted a little longer than that.
_CANCEL_SETTLES_S = 0.25
_SILENCE_LOOKS = 4
"""How often silence is looked for within the time that it is allowed."""


class ChatService:
    """Admits chats and runs them on their backends."""

    def __init__(
        self,
        models: Mapping[str, ChatModel],
        readiness: Readiness,
        metrics: RouterMetrics,
        cancel_settles_s: float = _CANCEL_SETTLES_S,
        silence_s: float = 30.0,
    ) -> None:
        self._models = models
        self._readiness = readiness
        self._metrics = metrics.chat
        self._refused = metrics.admission_refused
        self._cancel_settles_s = cancel_settles_s
        self._stopped = False
        self._silence_s = silence_s
        self._running: dict[Waits, Account] = {}
        self._looking = False
        for model in models.values():
            model.queue.changed = partial(self._metrics.room, model.model.name)
            if (budget := model.queue.budget.limit_tokens) is not None:
                self._metrics.budget(model.model.name, budget)

    def ready_model(self, model: Model) -> ChatModel:
        """What the router has for this model. Raises BackendUnavailable unless it is ready."""
        try:
            self._readiness.require(model)
        except BackendUnavailable:
            self._refused(model.name, "interactive", "not_ready")
            raise
        if model.name not in self._models:
            raise BackendUnavailable(f"{model.name} is not ready: its tokenizer or template is missing.", param="model")
        chat = self._models[model.name]
        return chat if model.adapter is None else replace(chat, model=model)

    def stop(self) -> None:
        """End every answer that is still being written, and every wait for room: their callers are told so."""
        self._stopped = True
        for waits in self._running:
            waits.end()

    async def answer(self, ask: Ask, context: RequestContext) -> AsyncGenerator[Step, None]:
        """All choices, as they come, once there is room for them.

        Raises Overloaded or DeadlineExceeded before anything is sent. However it ends, what the backend still works on
        is cancelled, and admitted until the backend has ended it.
        """
        account = Account(ask, context, self._metrics, begun_span(ask, context))
        waits = Waits(context.deadline, partial(self._out_of_time, account))
        self._running[waits] = account
        if not self._looking:
            self._looking = True
            self._look_later()
        if self._stopped:
            waits.end()
        try:
            held = await self._admitted(account, waits)
            async with aclosing(self._steps(account, held, waits)) as steps:
                async for step in steps:
                    yield step
        except BaseException as end:
            if account.run.is_complete and isinstance(end, ServingError):
                return  # the caller has every choice: what went wrong after that is nothing to him
            account.broken_off(end, self._reason(end, context))
            raise
        finally:
            del self._running[waits]
            waits.close()
            account.close()
            end_spans(account)

    async def _admitted(self, account: Account, waits: Waits) -> Held:
        ask, context = account.ask, account.context
        model = ask.chat.model
        try:
            with context.record.phase("admission"), waits:
                await ask.chat.queue.admit(ask.held_tokens, len(ask.calls), context.caller)
        except Overloaded:
            self._refused(model.name, context.record.slo_class, "queue")
            raise
        except DeadlineExceeded:
            self._refused(model.name, context.record.slo_class, "deadline")
            raise
        account.admitted()
        return Held(ask.chat.queue, [call.held_tokens for call in ask.calls], self._cancel_settles_s)

    async def _steps(self, account: Account, held: Held, waits: Waits) -> AsyncGenerator[Step, None]:
        model, context = account.ask.chat.model, account.context
        try:
            async with aclosing(merged(self._calls(account, held), account.ask.chat.calls_at_once)) as steps:
                while True:
                    with waits:
                        step = await anext(steps, None)
                    if step is None:
                        break
                    account.run.told(step)
                    yield step
            if not account.run.is_complete:
                raise BackendFailed(f"The server behind {model.name} ended an answer without saying why.")
        except DeadlineExceeded:
            self._note_lateness(account)
            raise
        except (BackendFailed, BackendUnavailable) as fault:
            if self._stopped:
                raise
            if context.deadline.remaining_s() <= 0:
                # The backend knows the deadline too, and may say that it was cut off before our own timer does.
                self._note_lateness(account)
                raise context.deadline.exceeded() from fault
            if fault.code == BREAKER_OPEN:
                self._refused(model.name, context.record.slo_class, "breaker")
            elif isinstance(fault, BackendUnavailable):
                self._readiness.doubt(model, fault)
            raise
        finally:
            held.left_all()

    def _calls(self, account: Account, held: Held) -> list[AsyncGenerator[Step, None]]:
        started, first = [], 0
        for index, call in enumerate(account.ask.calls):
            started.append(self._call(account, held, index, first))
            first += call.choices
        return started

    async def _call(self, account: Account, held: Held, index: int, first: int) -> AsyncGenerator[Step, None]:
        """The steps of the choices from `first` on, which one call to the backend makes."""
        call, run = account.ask.calls[index], account.run
        # An upstream matches stop strings itself; a leaf may let half of one out while it streams.
        scanner = StopScanner(call.work.sampling.stop if isinstance(call.work, Generation) else ())
        gates: defaultdict[int, TokenGate] = defaultdict(TokenGate)
        cut = False
        run.sent(index)
        try:
            async with aclosing(self._pieces(account, call)) as pieces:
                async for piece in pieces:
                    if piece.usage is not None:
                        run.usages[index] = piece.usage
                        held.counted(index, piece.usage.prompt_tokens + piece.usage.completion_tokens)
                    cut = cut or piece.cut
                    step = _step(run, first + piece.choice, piece, scanner, gates[piece.choice])
                    if piece.finish_reason is not None and run.has_ended(index) and not cut:
                        held.ended(index)  # before the caller, who may be slow, has read so far
                    if step is not None:
                        yield step
                    if scanner.matched is not None:
                        return
            if not cut:
                held.ended(index)
        except ServingError:
            if not run.has_ended(index):
                raise  # else the caller has all of it: what goes wrong after that is nothing to him
        finally:
            held.left(index)

    async def _pieces(self, account: Account, call: Call) -> AsyncGenerator[Piece, None]:
        """What the backend says, each piece of a choice that was asked for."""
        model = account.ask.chat.model
        work = below_span(call.work, account.span)
        pieces = account.ask.chat.backend.generate(work, account.context.deadline.remaining_s())
        if call.reader is not None:
            pieces = call.reader(pieces, call.choices)
        async with aclosing(pieces):
            async for piece in pieces:
                if not account.run.is_answered:
                    self._readiness.answered(_served_by(model))
                    account.run.is_answered = True
                if not 0 <= piece.choice < call.choices:
                    raise BackendFailed(f"The server behind {model.name} answered with a choice nobody asked for.")
                if says_something(piece):
                    account.first_token()
                yield piece

    def _note_lateness(self, account: Account) -> None:
        if not account.run.is_answered:
            model = account.ask.chat.model
            self._readiness.unanswered(model, _served_by(model), account.context.budget_s)

    def _look_later(self) -> None:
        asyncio.get_running_loop().call_later(self._silence_s / _SILENCE_LOOKS, self._end_the_silent)

    def _end_the_silent(self) -> None:
        """End answers that began and of which nothing more comes.

        Triton 2.51 was seen to leave the streams of a killed Python stub open.
        """
        for waits, account in self._running.items():
            if account.run.has_begun and waits.waiting_s > self._silence_s:
                account.fell_silent = True
                waits.end()
        self._looking = bool(self._running)
        if self._looking:
            self._look_later()

    def _out_of_time(self, account: Account) -> ServingError:
        """What ends a wait: the router's stop, a backend gone silent, or the request's deadline."""
        if self._stopped:
            return BackendUnavailable(
                "The router is stopping and ended this answer before it was complete. Send the request again.",
                code="router_stopping",
            )
        if account.fell_silent:
            return BackendUnavailable(
                f"The server behind {account.ask.chat.model.name} stopped in the middle of this answer and has said "
                f"nothing for {self._silence_s:g} s. Send the request again."
            )
        return account.context.deadline.exceeded() if account.is_admitted else account.ask.chat.queue.out_of_time()

    def _reason(self, end: BaseException, context: RequestContext) -> WasteReason:
        """What an answer that did not get to its end was broken off by."""
        if self._stopped:
            return "shutdown"
        if isinstance(end, DeadlineExceeded):
            return "deadline"
        if isinstance(end, GeneratorExit | asyncio.CancelledError):
            # A caller who stops reading is closed at the deadline, and has not hung up.
            return "hang_up" if context.deadline.remaining_s() > 0 else "deadline"
        return "error"


def _step(run: Run, index: int, piece: Piece, scanner: StopScanner, gate: TokenGate) -> Step | None:
    """What the caller gets of a piece; None where it says nothing new."""
    if run.choices[index].finish_reason is not None:
        run.noted(index, piece)  # only figures may follow the end
        return None
    text, reason = scanner.feed(piece.text), piece.finish_reason
    if scanner.matched is not None:
        reason = "stop"
        run.past_stop.append(scanner.beyond)
    elif reason is not None:
        text += scanner.flush()
    tokens = gate.feed(piece.text, piece.logprobs, text)
    run.took(index, piece, text)
    if reason is None and not (text or says_more_than_text(piece)):
        return None
    written = 0 if reason is None else run.finish(index, reason)
    return Step(index, text, reason, written, piece.tool_calls, tokens, piece.reasoning, piece.refusal)


def _served_by(model: Model) -> str:
    """What hangs when nothing answers. Chat is always interactive: a stream keeps its slot whatever its class."""
    return model.name if model.chat_backend.is_upstream else model.triton_model("interactive")
