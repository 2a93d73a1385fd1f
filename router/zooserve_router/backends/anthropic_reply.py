"""Answers in Anthropic's words: the events of a message as pieces."""

import json
import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from zooserve.errors import BackendFailed
from zooserve_router.chat.generation import MOST_TOKENS, Piece, ToolCallPart, Usage

__all__ = ["EventTranslator"]

_log = logging.getLogger(__name__)

_REASONS: Mapping[str, str] = MappingProxyType(
    {
        "end_turn": "stop",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "pause_turn": "stop",
        "refusal": "content_filter",
        "stop_sequence": "stop",
        "tool_use": "tool_calls",
    }
)


class EventTranslator:
    """Reads the events of one message in order."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._calls: dict[int, int] = {}
        """By content block, which call it is."""
        self._written: set[int] = set()
        """The blocks of calls whose arguments have begun."""
        self._usage: dict[str, int] = {}
        self._ended = False
        self._read: Mapping[str, Callable[[Mapping[str, Any]], list[Piece]]] = {
            "message_start": self._start,
            "content_block_start": self._block_start,
            "content_block_delta": self._block_delta,
            "content_block_stop": self._block_stop,
            "message_delta": self._delta,
        }

    def pieces(self, event: Mapping[str, Any]) -> list[Piece]:
        """What is new in this event; kinds that are not known say nothing to us, as the API's versioning wants it."""
        read = self._read.get(str(event.get("type")))
        if read is None:
            return []
        try:
            return read(event)
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            raise BackendFailed(f"The upstream of {self._model} sent an event that cannot be read.") from exc

    def end(self) -> list[Piece]:
        """What the stream's end completes: the usage. Raises BackendFailed if the message had no end of its own."""
        if not self._ended:
            raise BackendFailed(f"The upstream of {self._model} ended an answer without saying why.")
        told = self._usage
        cached = told.get("cache_read_input_tokens", 0)
        prompt = told.get("input_tokens", 0) + told.get("cache_creation_input_tokens", 0) + cached
        reasoning = told.get("thinking_tokens", 0)
        return [Piece(usage=Usage(prompt, told.get("output_tokens", 0), cached, reasoning))]

    def _start(self, event: Mapping[str, Any]) -> list[Piece]:
        self._count(event["message"]["usage"])
        return []

    def _block_start(self, event: Mapping[str, Any]) -> list[Piece]:
        index, block = int(event["index"]), event["content_block"]
        if block["type"] == "tool_use":
            call = self._calls.setdefault(index, len(self._calls))
            given = json.dumps(block["input"]) if block.get("input") else ""
            if given:
                self._written.add(index)
            return [Piece(tool_calls=(ToolCallPart(call, given, block["id"], block["name"]),))]
        return _said(block.get("text") or "", block.get("thinking") or "")

    def _block_delta(self, event: Mapping[str, Any]) -> list[Piece]:
        index, delta = int(event["index"]), event["delta"]
        if delta["type"] == "input_json_delta" and index in self._calls and delta["partial_json"]:
            self._written.add(index)
            return [Piece(tool_calls=(ToolCallPart(self._calls[index], delta["partial_json"]),))]
        return _said(delta.get("text") or "", delta.get("thinking") or "")

    def _block_stop(self, event: Mapping[str, Any]) -> list[Piece]:
        """A call without arguments says none over there; here it is an empty object."""
        index = int(event["index"])
        if index not in self._calls or index in self._written:
            return []
        return [Piece(tool_calls=(ToolCallPart(self._calls[index], "{}"),))]

    def _delta(self, event: Mapping[str, Any]) -> list[Piece]:
        self._count(event.get("usage") or {})
        given = event["delta"].get("stop_reason")
        if given is None:
            return []
        if given not in _REASONS:
            _log.warning("%s: unknown stop reason %r, told as `stop`", self._model, str(given)[:64])
        self._ended = True
        return [Piece(finish_reason=_REASONS.get(given, "stop"))]

    def _count(self, usage: Mapping[str, Any]) -> None:
        """Take the counts over; each event's are of the whole message so far."""
        details = usage.get("output_tokens_details") or {}
        told = {**usage, **details}
        counts = {name: value for name, value in told.items() if isinstance(value, int) and 0 <= value <= MOST_TOKENS}
        self._usage.update(counts)


def _said(text: str, thinking: str) -> list[Piece]:
    return [Piece(text=text, reasoning=thinking)] if text or thinking else []
