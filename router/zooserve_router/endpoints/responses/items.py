"""The output items of a response as they are written: every change to them is an event.

An item is announced, filled by deltas, and done before the next begins; what a client joins from the deltas is what
the item says when it is done.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from zooserve.errors import BackendFailed
from zooserve_router.chat.ask import Step
from zooserve_router.chat.generation import TokenLogprob, ToolCallPart
from zooserve_router.endpoints.answers import bytes_of_token

__all__ = ["Event", "ItemStatus", "OutputItems"]

Event = dict[str, Any]
"""One event's payload, not numbered yet."""

ItemStatus = Literal["in_progress", "completed", "incomplete"]


@dataclass(frozen=True)
class _PartKind:
    """A kind of content part: its type, the field that its text goes into, and what its events are called."""

    type: str
    text_field: str
    event: str


_TEXT = _PartKind("output_text", "text", "response.output_text")
_REFUSAL = _PartKind("refusal", "refusal", "response.refusal")
_REASONING = _PartKind("reasoning_text", "text", "response.reasoning_text")


class OutputItems:
    """What the model has said so far, in the order in which it began to."""

    def __init__(self, *, with_logprobs: bool = False) -> None:
        self._with_logprobs = with_logprobs
        self._items: list[_Said | _Call] = []
        self._calls: dict[int, _Call] = {}

    def bodies(self) -> list[dict[str, Any]]:
        """The items as they stand now."""
        return [item.body() for item in self._items]

    def events(self, step: Step) -> Iterator[Event]:
        """What a step changes. Raises BackendFailed for more of a call that has ended."""
        if step.reasoning:
            yield from self._said("reasoning", _REASONING, step.reasoning, ())
        if step.text or step.logprobs:
            yield from self._said("message", _TEXT, step.text, step.logprobs if self._with_logprobs else ())
        if step.refusal:
            yield from self._said("message", _REFUSAL, step.refusal, ())
        for part in step.tool_calls:
            yield from self._called(part)

    def ending(self, status: ItemStatus) -> Iterator[Event]:
        """The end of the last item. A model that has said nothing to the end has said an empty message."""
        if status == "completed" and not any(item.is_visible for item in self._items):
            yield from self._said("message", _TEXT, "", ())
        yield from self._ended(status)

    def cut(self) -> None:
        """That nothing follows, and no event says so: the last item stays incomplete."""
        if self._items and self._items[-1].status == "in_progress":
            self._items[-1].status = "incomplete"

    def _said(self, kind: str, part: _PartKind, text: str, logprobs: Iterable[TokenLogprob]) -> Iterator[Event]:
        item = self._items[-1] if self._items else None
        if not isinstance(item, _Said) or item.kind != kind:
            yield from self._ended("completed")
            item = _Said(len(self._items), kind)
            self._items.append(item)
            yield item.added()
        yield from item.written(part, text, logprobs)

    def _called(self, part: ToolCallPart) -> Iterator[Event]:
        call = self._calls.get(part.index)
        if call is None:
            yield from self._ended("completed")
            call = _Call(len(self._items), part.id or f"call_{secrets.token_hex(12)}", part.name or "")
            self._calls[part.index] = call
            self._items.append(call)
            yield call.added()
        elif call is not self._items[-1]:
            raise BackendFailed("The model's server went on with a function call that it had ended; ask again.")
        if part.arguments:
            yield call.written(part.arguments)

    def _ended(self, status: ItemStatus) -> Iterator[Event]:
        if self._items:
            yield from self._items[-1].ended(status)


@dataclass
class _Part:
    """One content part while it is written."""

    kind: _PartKind
    texts: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)

    def body(self) -> dict[str, Any]:
        """The part with the text that it has so far."""
        text = {"type": self.kind.type, self.kind.text_field: "".join(self.texts)}
        if self.kind is not _TEXT:
            return text
        return {**text, "annotations": [], "logprobs": [_logprob(token, _token_of_item) for token in self.logprobs]}

    def logprobs_of_event(self, tokens: Iterable[TokenLogprob]) -> dict[str, Any]:
        """What an event says of these tokens: events of text always say something, others never do."""
        return {"logprobs": [_logprob(token, _token_of_event) for token in tokens]} if self.kind is _TEXT else {}


class _Said:
    """A message, or the reasoning before one: an item of content parts."""

    def __init__(self, index: int, kind: str) -> None:
        self.kind = kind
        self.is_visible = kind == "message"
        self._id = f"{'msg' if self.is_visible else 'rs'}_{secrets.token_hex(24)}"
        self._index = index
        self.status: ItemStatus = "in_progress"
        self._parts: list[_Part] = []

    def body(self) -> dict[str, Any]:
        """The item as it stands now."""
        head = {"id": self._id, "type": self.kind, "status": self.status}
        kind: dict[str, Any] = {"role": "assistant"} if self.is_visible else {"summary": []}
        return {**head, **kind, "content": [part.body() for part in self._parts]}

    def added(self) -> Event:
        """That it begins, empty."""
        return _about_item("response.output_item.added", self._index, self.body())

    def written(self, kind: _PartKind, text: str, logprobs: Iterable[TokenLogprob]) -> Iterator[Event]:
        """More text, in a part of this kind."""
        if not self._parts or self._parts[-1].kind is not kind:
            yield from self._part_ended()
            self._parts.append(_Part(kind))
            yield self._about("response.content_part.added", part=self._parts[-1].body())
        part, tokens = self._parts[-1], tuple(logprobs)
        part.texts.append(text)
        part.logprobs.extend(tokens)
        if text or tokens:
            yield self._about(f"{kind.event}.delta", delta=text, **part.logprobs_of_event(tokens))

    def ended(self, status: ItemStatus) -> Iterator[Event]:
        """That nothing follows in it."""
        yield from self._part_ended()
        self.status = status
        yield _about_item("response.output_item.done", self._index, self.body())

    def _part_ended(self) -> Iterator[Event]:
        if not self._parts:
            return
        part, kind = self._parts[-1], self._parts[-1].kind
        body = part.body()
        text = {kind.text_field: body[kind.text_field]}
        yield self._about(f"{kind.event}.done", **text, **part.logprobs_of_event(part.logprobs))
        yield self._about("response.content_part.done", part=body)

    def _about(self, kind: str, **told: Any) -> Event:
        place = {"item_id": self._id, "output_index": self._index, "content_index": len(self._parts) - 1}
        return {"type": kind, **place, **told}


class _Call:
    """A function that the model wants called."""

    is_visible = True

    def __init__(self, index: int, call_id: str, name: str) -> None:
        self._id = f"fc_{secrets.token_hex(24)}"
        self._index = index
        self._call_id = call_id
        self._name = name
        self.status: ItemStatus = "in_progress"
        self._arguments: list[str] = []

    def body(self) -> dict[str, Any]:
        """The item as it stands now."""
        return {
            "id": self._id,
            "type": "function_call",
            "status": self.status,
            "call_id": self._call_id,
            "name": self._name,
            "arguments": "".join(self._arguments),
        }

    def added(self) -> Event:
        """That it begins, without arguments."""
        return _about_item("response.output_item.added", self._index, self.body())

    def written(self, arguments: str) -> Event:
        """More of its arguments."""
        self._arguments.append(arguments)
        return self._about("response.function_call_arguments.delta", delta=arguments)

    def ended(self, status: ItemStatus) -> Iterator[Event]:
        """That its arguments are whole, or cut."""
        self.status = status
        yield self._about("response.function_call_arguments.done", arguments="".join(self._arguments))
        yield _about_item("response.output_item.done", self._index, self.body())

    def _about(self, kind: str, **told: Any) -> Event:
        return {"type": kind, "item_id": self._id, "output_index": self._index, **told}


def _about_item(kind: str, index: int, body: Mapping[str, Any]) -> Event:
    return {"type": kind, "output_index": index, "item": body}


def _logprob(token: TokenLogprob, told: Callable[[str, float, bytes | None], dict[str, Any]]) -> dict[str, Any]:
    top = [told(text, logprob, None) for text, logprob in token.top]
    return {**told(token.token, token.logprob, token.data), "top_logprobs": top}


def _token_of_item(text: str, logprob: float, data: bytes | None) -> dict[str, Any]:
    """This API has no null for bytes that nobody tells: there are none."""
    return {"token": text, "bytes": bytes_of_token(text, data) or [], "logprob": logprob}


def _token_of_event(text: str, logprob: float, data: bytes | None) -> dict[str, Any]:
    """The types of events have no bytes."""
    return {"token": text, "logprob": logprob}
