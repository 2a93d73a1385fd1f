"""Messages to a prompt of counted tokens and a grant of answer tokens: what answering a request will take.

A leaf knows neither templates nor token counts: both are decided here, before it is asked. An upstream has its own
template, and counts for itself: it is sent the messages, and its count is believed.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from zooserve.catalogue import Backend, Model
from zooserve.errors import InputTooLong
from zooserve_router.chat.ask import Ask, Call, PieceReader, Prompt, calls_of_prompts
from zooserve_router.chat.enforceable import refuse_unenforced
from zooserve_router.chat.generation import Conversation, Generation, Message
from zooserve_router.chat.grants import granted_tokens
from zooserve_router.chat.models import ChatModel
from zooserve_router.chat.templates import ChatTemplate
from zooserve_router.chat.tokens import ChatTokenizer
from zooserve_router.chat.tools.calling import constrained, reader_of
from zooserve_router.chat.tools.families import described, parsed_arguments

__all__ = ["ask_of_conversation", "prompt_of_text", "rendered_prompt", "tokens_of"]

# Where only the backend can count: English text has about four characters a token.
_CHARACTERS_PER_TOKEN = 4


async def ask_of_conversation(chat: ChatModel, wanted: Conversation, max_tokens: int | None) -> Ask:
    """What answering takes, `n` times; `max_tokens` None leaves the length to the model.

    Raises BadInput for content that would forge turns, TemplateFailed, InputTooLong, or Unsupported for what the
    backend cannot be held to.
    """
    if chat.template is None or chat.tokenizer is None:
        return await _ask_of_upstream(chat, wanted, max_tokens)
    prompt, told, reader = await rendered_prompt(chat.model, chat.template, chat.tokenizer, wanted)
    granted = granted_tokens(chat.model, prompt.tokens, max_tokens, None, "messages")
    # An engine puts the token that begins every prompt there by itself, and two of them change the answer.
    sent = replace(prompt, text=prompt.text.removeprefix(chat.tokenizer.added_start))
    asked = Generation(
        sent.text,
        replace(told.sampling, max_tokens=granted),
        lora=chat.model.adapter,
        constraint=told.constraint,
        cache_key=told.cache_key,
    )
    calls = calls_of_prompts((sent,), asked, told.n)
    return Ask(chat, tuple(replace(call, reader=reader) for call in calls), prompt.tokens, granted)


async def rendered_prompt(
    model: Model, template: ChatTemplate, tokenizer: ChatTokenizer, wanted: Conversation
) -> tuple[Prompt, Conversation, PieceReader | None]:
    """The prompt as the model reads it, with the conversation that it tells, and how its answer is read.

    Raises as `ask_of_conversation` does.
    """
    _refuse_forged_turns(model, tokenizer, wanted)
    told, reader = _told(model, wanted)
    text = template.render(told.messages, tools=told.tools, max_characters=_most_characters(model, tokenizer))
    tokens = await tokenizer.count_prompt(text, model.limits.max_tokens, "messages")
    return Prompt(text, tokens), told, reader


def _told(model: Model, wanted: Conversation) -> tuple[Conversation, PieceReader | None]:
    """The conversation in the words of this model's backend, and how the answer to it is read."""
    backend = model.chat_backend
    _refuse_unenforced(backend, wanted)
    whole = replace(wanted, messages=_with_system_prompt(wanted.messages, model.default_system_prompt))
    return constrained(backend, whole), reader_of(backend, whole)


def _refuse_unenforced(backend: Backend, wanted: Conversation) -> None:
    """Raises Unsupported for a schema that the server would take, and not hold the answer to."""
    if backend.server != "llama.cpp":
        return
    if wanted.constraint is not None and wanted.constraint.schema is not None:
        refuse_unenforced(wanted.constraint.schema, "the answer", "response_format")
    for tool in wanted.tools:
        refuse_unenforced(tool.parameters, f"the function {tool.name!r}", "tools")


def _refuse_forged_turns(model: Model, tokenizer: ChatTokenizer, wanted: Conversation) -> None:
    """Raises BadInput for text that only the template may write, InputTooLong before reading megabytes for it.

    An upstream's engine, too, reads such a token in what its template printed, whoever wrote it.
    """
    written = sum(len(text) for message in wanted.messages for _, text in _texts_of(message))
    if written > _most_characters(model, tokenizer):
        raise InputTooLong(
            f"This model's maximum context length is {model.limits.max_tokens} tokens; your messages are far longer. "
            "Shorten them.",
            param="messages",
        )
    for index, message in enumerate(wanted.messages):
        for place, text in (*_texts_of(message), *_unescaped_in(message)):
            tokenizer.refuse_control_tokens(text, f"messages[{index}].{place}")
    for index, tool in enumerate(wanted.tools):
        tokenizer.refuse_control_tokens(_json(described(tool)), f"tools[{index}]")


def _texts_of(message: Message) -> Iterator[tuple[str, str]]:
    """What the caller wrote of a message that a template may print, with its place."""
    content = message.get("content") or ""
    yield "content", content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    yield "name", message.get("name") or ""
    yield "tool_call_id", message.get("tool_call_id") or ""
    for index, call in enumerate(message.get("tool_calls") or ()):
        yield f"tool_calls[{index}].id", call["id"]
        for name in ("name", "arguments"):
            yield f"tool_calls[{index}].function.{name}", str(call["function"][name])


def _unescaped_in(message: Message) -> Iterator[tuple[str, str]]:
    """The arguments of calls as a template prints them: an escape hides what it stands for."""
    for index, call in enumerate(message.get("tool_calls") or ()):
        yield f"tool_calls[{index}].function.arguments", _json(parsed_arguments(call["function"]["arguments"]))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _most_characters(model: Model, tokenizer: ChatTokenizer) -> int:
    """No prompt that the model reads is longer."""
    return model.limits.max_tokens * tokenizer.longest_token_bytes


async def prompt_of_text(chat: ChatModel, text: str, param: str) -> Prompt:
    """A prompt as it stands, with the token that its server puts before it. Raises InputTooLong."""
    if chat.tokenizer is None:
        return Prompt(text, _estimated_tokens(text))
    start = chat.tokenizer.added_start
    sent = text.removeprefix(start)  # the engine adds it by itself, and two of them change the answer
    return Prompt(sent, await chat.tokenizer.count_prompt(start + sent, chat.model.limits.max_tokens, param))


async def _ask_of_upstream(chat: ChatModel, wanted: Conversation, max_tokens: int | None) -> Ask:
    """Messages as they are; prompt and answer are what they look like, until the upstream has counted."""
    if chat.tokenizer is not None:
        _refuse_forged_turns(chat.model, chat.tokenizer, wanted)
    told, reader = _told(chat.model, wanted)
    estimated = await _estimated_prompt(chat, told)
    granted = granted_tokens(chat.model, _surely_taken(chat, estimated, max_tokens), max_tokens, None, "messages")
    sampling = replace(told.sampling, max_tokens=granted)
    conversation = replace(told, sampling=sampling, first_message=_first_message(told, wanted))
    if "n" in chat.model.chat_backend.features or told.n == 1:
        return Ask(chat, (Call(conversation, (estimated + granted) * told.n, told.n, reader),), estimated, granted)
    choices = (_seeded(conversation, choice) for choice in range(told.n))
    return Ask(chat, tuple(Call(each, estimated + granted, 1, reader) for each in choices), estimated, granted)


def _first_message(told: Conversation, wanted: Conversation) -> int | None:
    """Where the caller's messages begin among those that are sent; None where they were put in other words."""
    added = len(told.messages) - len(wanted.messages)
    return added if added >= 0 and list(told.messages[added:]) == list(wanted.messages) else None


async def _estimated_prompt(chat: ChatModel, told: Conversation) -> int:
    """Without what a template puts around it: with a tokenizer no more than it is, else what it looks like."""
    texts = [text for message in told.messages for place, text in _texts_of(message) if not place.endswith("id")]
    texts += [_json(tool.parameters) for tool in told.tools]
    if chat.tokenizer is None:
        return sum(map(_estimated_tokens, texts))
    return await chat.tokenizer.count_prompt("\n".join(filter(None, texts)), chat.model.limits.max_tokens, "messages")


def _surely_taken(chat: ChatModel, estimated: int, max_tokens: int | None) -> int:
    """How much less the answer may have. What only looks too long, and was bounded, is the upstream's to refuse."""
    window = chat.model.limits.max_tokens
    return estimated if chat.tokenizer is not None else min(estimated, window - min(max_tokens or 1, window))


def _seeded(conversation: Conversation, choice: int) -> Conversation:
    """The same for one choice alone, which is not to say what another one says."""
    sampling = conversation.sampling
    return replace(conversation, n=1, sampling=replace(sampling, seed=(sampling.seed + choice) % 2**63))


def tokens_of(chat: ChatModel, text: str) -> int:
    """How many tokens the text has, estimated where only the backend can count."""
    return chat.tokenizer.count(text) if chat.tokenizer is not None else _estimated_tokens(text)


def _estimated_tokens(text: str) -> int:
    return -(-len(text) // _CHARACTERS_PER_TOKEN)


def _with_system_prompt(messages: Sequence[Mapping[str, Any]], default: str | None) -> list[dict[str, Any]]:
    whole = [dict(message) for message in messages]
    if default is not None and not any(message["role"] == "system" for message in whole):
        return [{"role": "system", "content": default}, *whole]
    return whole
