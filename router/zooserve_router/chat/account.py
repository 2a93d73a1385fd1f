"""The account of one chat: what it took and what became of it, counted once, however it ends."""

import time
from typing import Literal

from opentelemetry.trace import INVALID_SPAN, Span

from zooserve_observability.chat_metrics import ChatMetrics, ModelLabels, WasteReason
from zooserve_router.chat.ask import Ask
from zooserve_router.chat.generation import Timings
from zooserve_router.chat.run import Choice, Run
from zooserve_router.context import RequestContext

__all__ = ["Account"]


class Account:
    """Opened when a chat comes in, closed when it has ended."""

    def __init__(self, ask: Ask, context: RequestContext, metrics: ChatMetrics, span: Span = INVALID_SPAN) -> None:
        self.ask = ask
        self.span = span
        """Stands for the whole of it in the request's trace."""
        self.context = context
        self.run = Run(ask)
        self.opened_at = time.monotonic()
        self.admitted_at: float | None = None
        self.closed_at: float | None = None
        self.end: BaseException | None = None
        """What broke the answer off; None once it is complete."""
        self.reason: WasteReason | None = None
        self.fell_silent = False
        """Whether it was ended because nothing more came of it."""
        self._metrics = metrics
        self._first_token_noted = False

    @property
    def labels(self) -> ModelLabels:
        """The labels of its series."""
        model = self.ask.chat.model
        return (model.name, str(model.version), self.context.record.slo_class)

    @property
    def is_admitted(self) -> bool:
        """Whether there was room for it."""
        return self.admitted_at is not None

    def admitted(self) -> None:
        """There is room: from here on it counts as issued."""
        self.admitted_at = time.monotonic()
        self._metrics.admitted(self.labels, len(self.run.choices), self.admitted_at - self.opened_at)
        self.context.record.input_tokens = self.ask.prompt_tokens

    def first_token(self) -> None:
        """Something of the answer has come; only the first time counts."""
        if not self._first_token_noted:
            self._first_token_noted = True
            spent_s = time.monotonic() - self.context.started
            self.context.record.phases_s.setdefault("first_token", spent_s)
            self._metrics.first_token(self.labels, spent_s)

    def broken_off(self, end: BaseException, reason: WasteReason) -> None:
        """The answer did not get to its end."""
        self.end, self.reason = end, reason

    def close(self) -> None:
        """Count everything."""
        self.closed_at = time.monotonic()
        if self.admitted_at is None:
            return
        unfinished = self.run.count_unfinished()
        self._count_ends(unfinished)
        self._note_total()
        for choice in self.run.choices:
            self._note_choice(choice)

    def _count_ends(self, unfinished_tokens: int) -> None:
        self._metrics.ended(self.labels, "finished", self.run.finished)
        self._metrics.wasted(self.labels, "stop", self.run.tokens_past_stop())
        if self.reason is not None:
            outcome: Literal["failed", "cancelled"] = "failed" if self.reason == "error" else "cancelled"
            self._metrics.ended(self.labels, outcome, len(self.run.choices) - self.run.finished)
            self._metrics.wasted(self.labels, self.reason, unfinished_tokens)

    def _note_total(self) -> None:
        total = self.run.total()
        told = (total.cached_tokens, total.reasoning_tokens) if self.run.usages else ()
        self.context.record.counted(total.prompt_tokens, total.completion_tokens, *told)

    def _note_choice(self, choice: Choice) -> None:
        labels, metrics = self.labels, self._metrics
        if choice.seconds_a_token is not None:
            metrics.token_pace(labels, choice.seconds_a_token)
        if (timings := choice.timings) is not None:
            self._note_phases(timings)
            metrics.engine_spent(labels, timings.queue_s, timings.prefill_s, timings.decode_s)
            metrics.delivered(labels, self.run.delivery_delay_s(choice))
        if (report := choice.report) is not None:
            metrics.prompt_blocks(labels, report.reused_blocks, report.missed_blocks)
            if report.draft_tokens:
                metrics.drafted(labels, report.draft_tokens, report.accepted_draft_tokens, report.acceptance_rate)

    def _note_phases(self, timings: Timings) -> None:
        """Put the engine's phases beside the router's own; of several choices the longest."""
        phases = self.context.record.phases_s
        for name, spent_s in (
            ("queue", timings.queue_s),
            ("prefill", timings.prefill_s),
            ("decode", timings.decode_s),
        ):
            phases[name] = max(spent_s, phases.get(name, 0.0))
