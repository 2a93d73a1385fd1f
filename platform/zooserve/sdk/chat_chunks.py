"""An answer gathered from what the chat routes send: the chunks of a stream, or a body that holds all at once."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zooserve.sdk.answers import Answer
from zooserve.sdk.chat_results import ChatAnswer, Choice, Completion, TokenLogprob, ToolCall, Usage
from zooserve.sdk.faults import error_of_event
from zooserve.sdk.sse import ServerEvent

__all__ = ["Gathered", "chat_answer", "chunk_in", "completion", "gathered_whole"]

_DONE = "[DONE]"


class Gathered:
    """What has come of one answer. Complete once every choice has its finish reason.

    What is not as the API has it raises AttributeError, KeyError, TypeError or ValueError.

    >>> gathered = Gathered()
    >>> gathered.add({"choices": [{"index": 0, "delta": {"content": "Par"}, "finish_reason": None}]})
    'Par'
    >>> gathered.add({"choices": [{"index": 0, "delta": {"content": "is"}, "finish_reason": "stop"}]})
    'is'
    >>> gathered.choices()[0].text
    'Paris'
    """

    def __init__(self) -> None:
        self._parts: dict[int, _Parts] = {}
        self.usage: Usage | None = None

    @property
    def text(self) -> str:
        """What has come of the first choice."""
        return self._parts[0].text if 0 in self._parts else ""

    def add(self, told: Mapping[str, Any]) -> str:
        """Take a chunk or a whole body; returns what is new in the text of the first choice."""
        new = [self._add(choice) for choice in told["choices"]]
        self.usage = _usage(told["usage"]) if told.get("usage") else self.usage
        return "".join(text for index, text in new if index == 0)

    def choices(self) -> tuple[Choice, ...]:
        """All of them, in order. Raises ValueError where one is not at its end."""
        parts = [part for _, part in sorted(self._parts.items())]
        if not parts or not all(part.finish_reason for part in parts):
            raise ValueError("a choice without its end")
        return tuple(part.choice() for part in parts)

    def _add(self, choice: Mapping[str, Any]) -> tuple[int, str]:
        index = int(choice["index"])
        return index, self._parts.setdefault(index, _Parts()).add(choice)


def gathered_whole(answer: Answer) -> Gathered:
    """Of a body that holds everything. Raises UnreadableAnswer."""
    gathered = Gathered()
    with answer.being_read():
        gathered.add(answer.json())
    return gathered


def chunk_in(event: ServerEvent, head: Answer) -> dict[str, Any] | None:
    """The chunk that an event of this answer holds; None for the one that ends it.

    Raises the error that the event tells of: where a model fails in the middle, the status had been sent before.
    """
    if event.data == _DONE:
        return None
    with head.being_read():
        chunk: dict[str, Any] = json.loads(event.data)
        failed = bool(chunk.get("error"))
    if failed or event.name == "error":
        raise error_of_event(event.data.encode(), head.request_id)
    return chunk


def chat_answer(head: Answer, gathered: Gathered) -> ChatAnswer:
    """The answer to a chat. Raises UnreadableAnswer where it is not at its end."""
    with head.being_read():
        return ChatAnswer(**head.origin(), choices=gathered.choices(), usage=gathered.usage)


def completion(head: Answer, gathered: Gathered) -> Completion:
    """The answer to a completion. Raises UnreadableAnswer where it is not at its end."""
    with head.being_read():
        return Completion(**head.origin(), choices=gathered.choices(), usage=gathered.usage)


@dataclass
class _Parts:
    """One choice as it comes."""

    said: list[str] = field(default_factory=list)
    finish_reason: str = ""
    reasoning: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    calls: dict[int, dict[str, str]] = field(default_factory=dict)
    logprobs: list[TokenLogprob] = field(default_factory=list)

    @property
    def text(self) -> str:
        """What was said so far."""
        return "".join(self.said)

    def add(self, choice: Mapping[str, Any]) -> str:
        """Take what a chat's `delta` or `message`, or a completion's choice has; returns what is new of the text."""
        said = choice.get("delta") or choice.get("message") or choice
        text = str(said.get("content") or said.get("text") or "")
        self.said.append(text)
        self.reasoning.append(said.get("reasoning_content") or "")
        self.refusal.append(said.get("refusal") or "")
        for at, call in enumerate(said.get("tool_calls") or ()):
            self._call(call.get("index", at), call)
        self.logprobs += _logprobs(choice.get("logprobs") or {})
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        return text

    def choice(self) -> Choice:
        """What it has become."""
        return Choice(
            text=self.text,
            finish_reason=self.finish_reason,
            tool_calls=tuple(ToolCall(**call) for _, call in sorted(self.calls.items())),
            reasoning="".join(self.reasoning),
            refusal="".join(self.refusal),
            logprobs=tuple(self.logprobs),
        )

    def _call(self, index: int, part: Mapping[str, Any]) -> None:
        call = self.calls.setdefault(index, {"id": "", "name": "", "arguments": ""})
        function = part.get("function") or {}
        call["id"] = part.get("id") or call["id"]
        call["name"] = function.get("name") or call["name"]
        call["arguments"] += function.get("arguments") or ""


def _usage(told: Mapping[str, Any]) -> Usage:
    return Usage(
        prompt_tokens=int(told["prompt_tokens"]),
        completion_tokens=int(told["completion_tokens"]),
        total_tokens=int(told["total_tokens"]),
        cached_tokens=(told.get("prompt_tokens_details") or {}).get("cached_tokens"),
        reasoning_tokens=(told.get("completion_tokens_details") or {}).get("reasoning_tokens"),
    )


def _logprobs(told: Mapping[str, Any]) -> list[TokenLogprob]:
    """Of a chat, a list of objects; of a completion, lists side by side."""
    if told.get("tokens"):
        return _logprobs_side_by_side(told)
    return [
        TokenLogprob(
            token=each["token"],
            logprob=each["logprob"],
            data=None if each.get("bytes") is None else bytes(each["bytes"]),
            top=tuple((top["token"], top["logprob"]) for top in each.get("top_logprobs") or ()),
        )
        for each in told.get("content") or ()
    ]


def _logprobs_side_by_side(told: Mapping[str, Any]) -> list[TokenLogprob]:
    tokens: Sequence[str] = told["tokens"]
    tops = told.get("top_logprobs") or [{}] * len(tokens)
    return [
        TokenLogprob(token, logprob, None, tuple((top or {}).items()))
        for token, logprob, top in zip(tokens, told["token_logprobs"], tops, strict=True)
    ]
