"""A chat's spans: what it was, and where its time went.

An engine's clock is its own: of its four moments only the differences mean something. They are laid out from the moment
at which the request was handed to it, so that queue, prefill and decode stand too early by the way there, which is at
most as long as `delivery`, the span behind them: what the router saw beyond the engine's own time. An answer that was
broken off has no figures of the engine; its spans are what the router saw. `zooserve.clock` says which.
"""

import json
import time
from collections.abc import Iterator

from zooserve.errors import ServingError
from zooserve_observability.spans import Span
from zooserve_router.chat.account import Account
from zooserve_router.chat.run import Choice
from zooserve_router.tracing import SpanContext, child_of

__all__ = ["spans_of"]

_NS = 1_000_000_000


def spans_of(account: Account) -> list[Span]:
    """The spans of a closed account, the whole first; below the caller's own where he sent a trace context."""
    return list(_Writer(account).spans())


class _Writer:
    """Writes one account's spans on the wall clock, which is read once."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._run = account.run
        self._context = child_of(account.context.traceparent)
        self._wall_ns = time.time_ns()
        self._monotonic = time.monotonic()
        self._closed_at = account.closed_at or self._monotonic

    def spans(self) -> Iterator[Span]:
        account = self._account
        yield self._span("chat", self._context, account.context.started, self._closed_at, _attributes(account))
        yield self._child("admission", account.opened_at, account.admitted_at or self._closed_at, {})
        for index, choice in enumerate(self._run.choices):
            if choice.call in self._run.sent_at:
                yield from self._phases(index, choice, self._run.sent_at[choice.call])

    def _phases(self, index: int, choice: Choice, sent_at: float) -> Iterator[Span]:
        seen = {"zooserve.choice": str(index), "zooserve.clock": "router"}
        if choice.timings is None:
            first_at = choice.first_at or self._closed_at
            yield self._child("first_token", sent_at, first_at, seen)
            if choice.first_at is not None:
                yield self._child("decode", first_at, choice.last_at or first_at, seen)
            return
        told, at = {**seen, "zooserve.clock": "engine"}, sent_at
        timings = choice.timings
        for name, spent_s in (("queue", timings.queue_s), ("prefill", timings.prefill_s), ("decode", timings.decode_s)):
            yield self._child(name, at, at + spent_s, told)
            at += spent_s
        yield self._child("delivery", at, at + self._run.delivery_delay_s(choice), seen)

    def _child(self, name: str, began: float, ended: float, attributes: dict[str, str]) -> Span:
        return self._span(name, child_of(self._context.traceparent), began, ended, attributes)

    def _span(self, name: str, context: SpanContext, began: float, ended: float, attributes: dict[str, str]) -> Span:
        return Span(
            trace_id=context.trace_id,
            span_id=context.span_id,
            parent_id=context.parent_id,
            name=name,
            start_ns=self._at_ns(began),
            end_ns=self._at_ns(ended),
            attributes=attributes,
            error=_error(self._account.end) if context is self._context else "",
        )

    def _at_ns(self, moment: float) -> int:
        return self._wall_ns - round((self._monotonic - moment) * _NS)


def _attributes(account: Account) -> dict[str, str]:
    model, run, record = account.ask.chat.model, account.run, account.context.record
    attributes = {
        "gen_ai.operation.name": account.ask.operation,
        "gen_ai.provider.name": model.chat_backend.kind,
        "gen_ai.request.model": model.name,
        "gen_ai.response.model": model.chat_backend.model or model.name,
        "gen_ai.usage.input_tokens": str(record.input_tokens),
        "gen_ai.usage.output_tokens": str(record.output_tokens),
        "gen_ai.response.finish_reasons": json.dumps([choice.finish_reason for choice in run.choices]),
        "zooserve.model_version": str(model.version),
        "zooserve.slo_class": record.slo_class,
        "zooserve.request_id": account.context.request_id,
        "zooserve.outcome": _outcome(account),
    }
    if account.reason is not None:
        attributes["zooserve.broken_off_by"] = account.reason
    if isinstance(account.end, ServingError):
        attributes["error.type"] = type(account.end).__name__
    return attributes


def _outcome(account: Account) -> str:
    """As the request counts in zooserve_requests, as far as it is known here."""
    if account.end is None:
        return "ok"
    return type(account.end).__name__ if isinstance(account.end, Exception) else "cancelled"


def _error(end: BaseException | None) -> str:
    if end is None or not isinstance(end, Exception):
        return ""  # that a caller left is no error
    return end.message if isinstance(end, ServingError) else repr(end)
