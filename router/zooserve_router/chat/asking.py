"""Messages to a prompt of counted tokens and a grant of answer tokens: what answering a request will take.

A leaf knows neither templates nor token counts: both are decided here, before it is asked. An upstream has its own
template, and counts for itself: it is sent the messages, and its count is believed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from zooserve.errors import InputTooLong
from zooserve_router.chat.ask import Ask, Call, Prompt, calls_of_prompts
from zooserve_router.chat.generation import Conversation, Message
from zooserve_router.chat.grants import granted_tokens
from zooserve_router.chat.models import ChatModel
from zooserve_router.chat.templates import ChatTemplate
from zooserve_router.chat.tokens import ChatTokenizer

__all__ = ["ask_of_conversation", "prompt_of_text", "tokens_of"]

# Where only the backend can count: English text has about four characters a token.
_CHARACTERS_PER_TOKEN = 4


async def ask_of_conversation(chat: ChatModel, wanted: Conversation, max_tokens: int | None) -> Ask:
    """What answering takes, `n` times; `max_tokens` None leaves the length to the model.

    Raises BadInput for content that would forge turns, TemplateFailed, or InputTooLong.
    """
    if chat.template is None or chat.tokenizer is None:
        return _ask_of_upstream(chat, wanted, max_tokens)
    prompt = await _rendered(chat, chat.template, chat.tokenizer, wanted.messages)
    granted = granted_tokens(chat.model, prompt.tokens, max_tokens, None, "messages")
    sampling = replace(wanted.sampling, max_tokens=granted)
    return Ask(
        chat, calls_of_prompts((prompt,), sampling, wanted.n, constraint=wanted.constraint), prompt.tokens, granted
    )


async def _rendered(
    chat: ChatModel, template: ChatTemplate, tokenizer: ChatTokenizer, messages: Sequence[Message]
) -> Prompt:
    """The messages as the model wants to read them."""
    limit = chat.model.limits.max_tokens
    most_characters = limit * tokenizer.longest_token_bytes
    if sum(len(str(message.get("content", ""))) for message in messages) > most_characters:
        raise InputTooLong(
            f"This model's maximum context length is {limit} tokens; your messages are far longer. Shorten them.",
            param="messages",
        )
    for index, message in enumerate(messages):
        for name in ("content", "name"):
            tokenizer.refuse_control_tokens(str(message.get(name, "")), f"messages[{index}].{name}")
    whole = _with_system_prompt(messages, chat.model.default_system_prompt)
    text = template.render(whole, max_characters=most_characters)
    return await prompt_of_text(chat, text, param="messages")


async def prompt_of_text(chat: ChatModel, text: str, param: str) -> Prompt:
    """A prompt as it stands. Raises InputTooLong."""
    if chat.tokenizer is None:
        return Prompt(text, _estimated_tokens(text))
    return Prompt(text, await chat.tokenizer.count_prompt(text, chat.model.limits.max_tokens, param))


def _ask_of_upstream(chat: ChatModel, wanted: Conversation, max_tokens: int | None) -> Ask:
    """Messages as they are; prompt and answer are what they look like, until the upstream has counted."""
    estimated = sum(_estimated_tokens(str(message.get("content") or "")) for message in wanted.messages)
    granted = granted_tokens(chat.model, min(estimated, chat.model.limits.max_tokens - 1), max_tokens, None, "messages")
    conversation = replace(wanted, sampling=replace(wanted.sampling, max_tokens=granted))
    if "n" in chat.model.chat_backend.features or wanted.n == 1:
        calls: tuple[Call, ...] = (Call(conversation, (estimated + granted) * wanted.n, wanted.n),)
    else:
        calls = tuple(Call(_seeded(conversation, choice), estimated + granted) for choice in range(wanted.n))
    return Ask(chat, calls, estimated, granted)


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
