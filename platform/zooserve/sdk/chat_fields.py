"""What is asked of the chat routes: the fields they take, and bodies made of them."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from zooserve.errors import BadInput
from zooserve.sdk.inputs import checked_list, checked_text

__all__ = ["ChatFields", "CompletionFields", "Message", "Prompt", "chat_body", "completion_body"]

Message = Mapping[str, Any]
"""`{"role": "user", "content": "…"}`, and what else OpenAI's messages have."""
Prompt = str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]]
"""A text, token ids, or a list of up to 16 of either."""


class _SharedFields(TypedDict, total=False):
    """What both routes take, each as OpenAI has it; docs/chat.md says what a model's backend makes of it."""

    max_tokens: int | None
    temperature: float | None
    top_p: float | None
    n: int | None
    stop: str | Sequence[str] | None
    seed: int | None
    frequency_penalty: float | None
    presence_penalty: float | None
    logit_bias: Mapping[str, float] | None
    stream_options: Mapping[str, Any] | None
    user: str | None
    metadata: Mapping[str, str] | None
    store: bool | None
    service_tier: str | None
    prompt_cache_key: str | None
    prompt_cache_retention: str | None
    safety_identifier: str | None


class CompletionFields(_SharedFields, total=False):
    """What `complete` takes beside prompt and model."""

    logprobs: int | None
    echo: bool | None
    best_of: int | None


class ChatFields(_SharedFields, total=False):
    """What `chat` takes beside messages and model."""

    max_completion_tokens: int | None
    logprobs: bool | None
    top_logprobs: int | None
    response_format: Mapping[str, Any] | None
    tools: Sequence[Mapping[str, Any]] | None
    tool_choice: str | Mapping[str, Any] | None
    parallel_tool_calls: bool | None
    reasoning_effort: str | None
    verbosity: str | None
    prediction: Mapping[str, Any] | None
    web_search_options: Mapping[str, Any] | None
    modalities: Sequence[str] | None


def chat_body(
    messages: str | Sequence[Message], model: str, fields: Mapping[str, Any], *, stream: bool = False
) -> dict[str, Any]:
    """Of /v1/chat/completions; a text is one message from the user. Raises BadInput for what cannot be a conversation.

    >>> chat_body("Is it raining?", "chat", {"max_tokens": 8, "stop": None})["messages"]
    [{'role': 'user', 'content': 'Is it raining?'}]
    """
    if isinstance(messages, str):
        messages = [{"role": "user", "content": checked_text(messages, "messages")}]
    said = checked_list(messages, "messages")
    for place, message in enumerate(said):
        if not isinstance(message, Mapping) or "role" not in message:
            raise BadInput(
                f"`messages[{place}]` is {message!r}; it must be an object with `role` and `content`.",
                param=f"messages[{place}]",
            )
    return {"messages": said, **_body(model, fields, stream=stream)}


def completion_body(prompt: Prompt, model: str, fields: Mapping[str, Any], *, stream: bool = False) -> dict[str, Any]:
    """Of /v1/completions. Raises BadInput for what cannot be a prompt."""
    given = checked_text(prompt, "prompt") if isinstance(prompt, str) else checked_list(prompt, "prompt")
    return {"prompt": given, **_body(model, fields, stream=stream)}


def _body(model: str, fields: Mapping[str, Any], *, stream: bool) -> dict[str, Any]:
    """The fields that say something; the usage comes with a stream unless it was asked for otherwise."""
    if "stream" in fields:
        raise BadInput("`stream` is no field here: use `chat_stream` or `complete_stream`.", param="stream")
    asked = {name: value for name, value in fields.items() if value is not None}
    if stream:
        asked = {"stream_options": {"include_usage": True}, **asked, "stream": True}
    return {"model": checked_text(model, "model"), **asked}
