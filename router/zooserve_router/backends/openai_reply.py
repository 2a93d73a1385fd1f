"""Answers in OpenAI's words: the chunks of a stream as pieces, whatever its server adds or leaves out."""

import json
import logging
import time
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from zooserve.errors import BackendFailed
from zooserve_router.chat.generation import MOST_TOKENS, Piece, Timings, TokenLogprob, ToolCallPart, Usage

__all__ = ["ChunkReader"]

_log = logging.getLogger(__name__)

_REASONS: Mapping[str, str] = MappingProxyType(
    {
        "content_filter": "content_filter",
        "end_turn": "stop",
        "eos": "stop",
        "eos_token": "stop",
        "function_call": "tool_calls",
        "length": "length",
        "max_tokens": "length",
        "model_length": "length",
        "stop": "stop",
        "stop_sequence": "stop",
        "tool_calls": "tool_calls",
    }
)
"""OpenAI's finish reasons, and those of its kin for the same things."""
_FAILURES = ("abort", "cancelled", "error", "insufficient_system_resource", "timeout")
"""Finish reasons of servers that gave an answer up."""


class ChunkReader:
    """Reads the chunks of one answer in order, of /chat/completions and /completions alike.

    `alternatives` is how many were asked for beside each token: some servers send more.
    """

    def __init__(self, model: str, choices: int, alternatives: int) -> None:
        self._model = model
        self._alternatives = alternatives
        self._unfinished = set(range(choices))
        self._begun_calls: set[tuple[int, int]] = set()
        self._usage: Usage | None = None
        self._timings: Timings | None = None
        self._sent = time.monotonic()
        self._first_piece_s: float | None = None

    def pieces(self, chunk: Mapping[str, Any]) -> list[Piece]:
        """What is new in this chunk. Raises BackendFailed for one that is not OpenAI's, or that gives up."""
        try:
            self._usage = _usage(chunk.get("usage")) or self._usage
            read = [piece for choice in chunk.get("choices") or () for piece in self._read(choice)]
            self._timings = self._timed(chunk.get("timings")) or self._timings
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            raise BackendFailed(f"The upstream of {self._model} sent a chunk that cannot be read.") from exc
        if read and self._first_piece_s is None:
            self._first_piece_s = time.monotonic() - self._sent
        # llama.cpp tells how far it has read the prompt: nothing is said yet, and it does not hang.
        return read or ([Piece()] if chunk.get("prompt_progress") else [])

    def end(self) -> list[Piece]:
        """What the stream's end completes: usage and timings, where they are told.

        Raises BackendFailed if a choice has no end of its own.
        """
        if self._unfinished:
            raise BackendFailed(f"The upstream of {self._model} ended an answer without saying why.")
        last = Piece(usage=self._usage, timings=self._timings)
        return [] if last == Piece() else [last]

    def _read(self, choice: Mapping[str, Any]) -> Iterator[Piece]:
        index = int(choice.get("index", 0))
        delta = choice.get("delta") or {}
        reason = self._reason(choice.get("finish_reason"))
        piece = Piece(
            text=_text(delta.get("content")) or choice.get("text") or "",
            finish_reason=reason,
            choice=index,
            tool_calls=tuple(self._calls(index, delta.get("tool_calls") or ())),
            logprobs=tuple(_logprobs(choice.get("logprobs") or {}, self._alternatives)),
            reasoning=_text(delta.get("reasoning_content") or delta.get("reasoning")),
            refusal=delta.get("refusal") or "",
        )
        if reason is not None:
            self._unfinished.discard(index)
        if piece != Piece(choice=index):  # a role alone, or an empty delta, is nothing new
            yield piece

    def _reason(self, given: str | None) -> str | None:
        if given is None or given == "":
            return None
        if given in _FAILURES:
            raise BackendFailed(f"The upstream of {self._model} gave the answer up: {given}.")
        if given not in _REASONS:
            _log.warning("%s: unknown finish reason %r, told as `stop`", self._model, given[:64])
        return _REASONS.get(given, "stop")

    def _calls(self, choice: int, parts: Any) -> Iterator[ToolCallPart]:
        for position, part in enumerate(parts):
            given = part.get("index")
            index = position if given is None else int(given)
            function = part.get("function") or {}
            begins = (choice, index) not in self._begun_calls
            self._begun_calls.add((choice, index))
            # Some servers repeat id and name in every part.
            yield ToolCallPart(
                index,
                _arguments(function.get("arguments")),
                id=part.get("id") if begins else None,
                name=function.get("name") if begins else None,
            )

    def _timed(self, told: Mapping[str, float] | None) -> Timings | None:
        """llama.cpp's; what passed before its first piece besides its own work was waiting."""
        if told is None:
            return None
        prefill_s, decode_s = told["prompt_ms"] / 1000, told["predicted_ms"] / 1000
        return Timings(max(0.0, (self._first_piece_s or prefill_s) - prefill_s), prefill_s, decode_s)


def _text(content: Any) -> str:
    """Text as it is, or the texts of its parts."""
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content)
    return content or ""


def _arguments(given: Any) -> str:
    return given if isinstance(given, str) else "" if given is None else json.dumps(given)


def _logprobs(told: Mapping[str, Any], alternatives: int) -> Iterator[TokenLogprob]:
    for token in told.get("content") or ():
        top = [(each["token"], float(each["logprob"])) for each in token.get("top_logprobs") or ()]
        yield TokenLogprob(token["token"], float(token["logprob"]), tuple(top[:alternatives]))
    # The older form, of raw completions.
    tokens, values = told.get("tokens") or (), told.get("token_logprobs") or ()
    tops = told.get("top_logprobs") or [None] * len(tokens)
    for text, value, top_values in zip(tokens, values, tops, strict=True):
        if value is not None:
            yield TokenLogprob(text, float(value), tuple((top_values or {}).items())[:alternatives])


def _usage(told: Mapping[str, Any] | None) -> Usage | None:
    if not told:
        return None
    return Usage(
        prompt_tokens=_count(told.get("prompt_tokens")),
        completion_tokens=_count(told.get("completion_tokens")),
        cached_tokens=_count((told.get("prompt_tokens_details") or {}).get("cached_tokens")),
        reasoning_tokens=_count((told.get("completion_tokens_details") or {}).get("reasoning_tokens")),
    )


def _count(told: Any) -> int:
    """A count of tokens. Raises ValueError for one that no answer has."""
    count = int(told) if isinstance(told, str) else told or 0
    if not 0 <= count <= MOST_TOKENS:
        raise ValueError("no count of tokens")
    return int(count)
