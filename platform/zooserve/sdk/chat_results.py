"""What the chat routes answer. Every answer has its choices, and what ran: model, version and the request's id."""

import json
from dataclasses import dataclass
from typing import Any

from zooserve.errors import UnreadableAnswer
from zooserve.sdk.results import Origin

__all__ = ["ChatAnswer", "Choice", "Completion", "TokenLogprob", "ToolCall", "Usage"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request: read, written, both; of these cached and thought ones, where the backend tells them."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a function: `arguments` is the JSON text, to the letter as the model wrote it.

    >>> ToolCall("call_1", "weather", '{"city": "Paris"}').parsed()
    {'city': 'Paris'}
    """

    id: str
    name: str
    arguments: str

    def parsed(self) -> dict[str, Any]:
        """The arguments as a dict. Raises UnreadableAnswer where they are no JSON object: an answer may be cut off."""
        try:
            arguments = json.loads(self.arguments)
        except ValueError as exc:
            raise UnreadableAnswer(
                f"The arguments of the call of {self.name} are no JSON: {self.arguments!r}."
            ) from exc
        if not isinstance(arguments, dict):
            raise UnreadableAnswer(f"The arguments of the call of {self.name} are no object: {self.arguments!r}.")
        return arguments


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One token of an answer with its natural log-probability, and the likeliest tokens in its place."""

    token: str
    logprob: float
    data: bytes | None
    """The token's bytes; None where nobody tells them: its text then stands for a part of a character."""
    top: tuple[tuple[str, float], ...]
    """(token, log-probability), as many as `top_logprobs` asked for."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the `n` answers to a request."""

    text: str
    finish_reason: str
    """`stop`, `length`, `tool_calls` or `content_filter`."""
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    refusal: str = ""
    logprobs: tuple[TokenLogprob, ...] = ()
    """Empty unless they were asked for."""

    @property
    def message(self) -> dict[str, Any]:
        """What was said, as a message for the next request of the same conversation.

        >>> Choice("Hello.", "stop").message
        {'role': 'assistant', 'content': 'Hello.'}
        """
        if not self.tool_calls:
            return {"role": "assistant", "content": self.text}
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in self.tool_calls
        ]
        return {"role": "assistant", "content": self.text or None, "tool_calls": calls}


@dataclass(frozen=True, kw_only=True)
class Completion(Origin):
    """The answer of `complete`: a choice for each prompt and each of its `n` answers, in order."""

    choices: tuple[Choice, ...]
    usage: Usage | None
    """None where a stream was asked to leave it out."""

    @property
    def text(self) -> str:
        """Of the first choice."""
        return self.choices[0].text

    @property
    def finish_reason(self) -> str:
        """Of the first choice."""
        return self.choices[0].finish_reason

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...]:
        """Of the first choice; empty unless they were asked for."""
        return self.choices[0].logprobs


@dataclass(frozen=True, kw_only=True)
class ChatAnswer(Completion):
    """The answer of `chat`: what a `Completion` has, and what only chats have.

    >>> choice = Choice("Paris.", "stop")
    >>> answer = ChatAnswer(model="chat", version="1", request_id="req_1", choices=(choice,), usage=Usage(12, 2, 14))
    >>> answer.text, answer.finish_reason, answer.usage.total_tokens
    ('Paris.', 'stop', 14)
    >>> answer.message
    {'role': 'assistant', 'content': 'Paris.'}
    """

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """Of the first choice."""
        return self.choices[0].tool_calls

    @property
    def reasoning(self) -> str:
        """What the model thought before its first choice, where its backend tells it."""
        return self.choices[0].reasoning

    @property
    def refusal(self) -> str:
        """Why the model did not answer, where its backend tells it; of the first choice."""
        return self.choices[0].refusal

    @property
    def message(self) -> dict[str, Any]:
        """The first choice as a message for the next request of the same conversation."""
        return self.choices[0].message
