"""A chat's spans: what it was, and where its time went.

An engine's clock is its own: of its four moments only the differences mean something. They are laid out from the moment
at which the request was handed to it, so that queue, prefill and decode stand too early by the way there, which is at
most as long as `delivery`, the span behind them: what the router saw beyond the engine's own time. An answer that was
broken off has no figures of the engine; its spans are what the router saw. `zooserve.clock` says which.

Names and attributes of the whole are those of OpenTelemetry's conventions for generative AI, as far as there are any.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from opentelemetry.trace import Span, SpanKind

from zooserve_observability.tracing import Attributes, failed, traceparent, wall_clock
from zooserve_router.chat.account import Account
from zooserve_router.chat.ask import Ask
from zooserve_router.chat.generation import Generation, Work
from zooserve_router.chat.run import Choice
from zooserve_router.context import RequestContext

__all__ = ["begun_span", "below_span", "end_spans"]

_TRACE_HEADERS = frozenset({"traceparent", "tracestate"})


def begun_span(ask: Ask, context: RequestContext) -> Span:
    """The span of a chat that comes in now."""
    model = ask.chat.model
    return context.trace.begin(
        f"{ask.operation} {model.name}",
        {
            "gen_ai.operation.name": ask.operation,
            "gen_ai.provider.name": model.chat_backend.kind,
            "gen_ai.request.model": model.name,
            "gen_ai.response.model": model.chat_backend.model or model.name,
            "zooserve.model": model.name,
            "zooserve.model_version": str(model.version),
            "zooserve.slo_class": context.record.slo_class,
        },
        kind=SpanKind.CLIENT,
    )


def below_span(work: Work, span: Span) -> Work:
    """The same work, whose upstream continues the trace below this span if the catalogue lets it see trace headers."""
    context = traceparent(span)
    if context is None or not any(name.lower() in _TRACE_HEADERS for name in work.headers):
        return work
    others = {name: value for name, value in work.headers.items() if name.lower() != "traceparent"}
    return replace(work, headers={**others, "traceparent": context})


def end_spans(account: Account) -> None:
    """End the span of a closed account, with the spans of its parts."""
    if not account.span.is_recording():
        return
    parts, closed_at = _Parts(account), account.closed_at or 0.0
    parts.add("admission", account.opened_at, account.admitted_at or closed_at)
    for index, choice in enumerate(account.run.choices):
        if choice.call in account.run.sent_at:
            _add_phases(parts, index, choice, account.run.sent_at[choice.call], closed_at)
    account.span.set_attributes(_attributes(account))
    if account.context.trace.keeps_content:
        account.span.set_attributes(_content(account))
    if isinstance(account.end, Exception):  # that a caller left is no error
        failed(account.span, type(account.end).__name__)
    account.span.end(parts.wall_ns(closed_at))


@dataclass(frozen=True)
class _Parts:
    """The parts of one account's span."""

    account: Account
    wall_ns: Callable[[float], int] = field(default_factory=wall_clock)

    def add(self, name: str, began: float, ended: float, attributes: Attributes | None = None) -> None:
        account, model = self.account, self.account.ask.chat.model
        own: Attributes = {"zooserve.model": model.name, "zooserve.model_version": str(model.version)}
        tags = {**own, **(attributes or {})}
        account.context.trace.add(name, self.wall_ns(began), self.wall_ns(ended), tags, below=account.span)


def _add_phases(parts: _Parts, index: int, choice: Choice, sent_at: float, closed_at: float) -> None:
    seen: Attributes = {"zooserve.choice": index, "zooserve.clock": "router"}
    if choice.timings is None:
        first_at = choice.first_at or closed_at
        parts.add("first_token", sent_at, first_at, seen)
        if choice.first_at is not None:
            parts.add("decode", first_at, choice.last_at or first_at, seen)
        return
    told, at, timings = {**seen, "zooserve.clock": "engine"}, sent_at, choice.timings
    for name, spent_s in (("queue", timings.queue_s), ("prefill", timings.prefill_s), ("decode", timings.decode_s)):
        parts.add(name, at, at + spent_s, told)
        at += spent_s
    parts.add("delivery", at, at + parts.account.run.delivery_delay_s(choice), seen)


def _attributes(account: Account) -> Attributes:
    record = account.context.record
    attributes: Attributes = {
        "gen_ai.usage.input_tokens": record.input_tokens,
        "gen_ai.usage.output_tokens": record.output_tokens,
        "gen_ai.response.finish_reasons": [choice.finish_reason or "" for choice in account.run.choices],
        "zooserve.outcome": _outcome(account),
    }
    return attributes if account.reason is None else {**attributes, "zooserve.broken_off_by": account.reason}


def _content(account: Account) -> Attributes:
    """What was asked and what was answered, as far as it came."""
    prompts = dict.fromkeys(_prompt(call.work) for call in account.ask.calls)
    return {
        "zooserve.prompts": list(prompts),
        "zooserve.answers": ["".join(choice.said) for choice in account.run.choices],
    }


def _prompt(work: Work) -> str:
    return work.prompt if isinstance(work, Generation) else json.dumps(list(work.messages), ensure_ascii=False)


def _outcome(account: Account) -> str:
    """As the request counts in zooserve_requests, as far as it is known here."""
    if account.end is None:
        return "ok"
    return type(account.end).__name__ if isinstance(account.end, Exception) else "cancelled"
