"""The `prompt` of /v1/completions: texts or token ids, each in the form that the model's backend takes.

An upstream that speaks OpenAI's API takes the ids themselves. A leaf's contract takes text only: it gets what the model
would write the ids as, and they are refused where that is nothing.
"""

from typing import Any

from zooserve.errors import BadInput, TooManyItems, Unsupported
from zooserve_router.chat.ask import Prompt
from zooserve_router.chat.asking import prompt_of_text
from zooserve_router.chat.models import ChatModel
from zooserve_router.chat.tokens import ChatTokenizer, refuse_more_than
from zooserve_router.endpoints.sampling import MAX_CHOICES
from zooserve_router.payload import checked_text

__all__ = ["PromptInput", "echo_of", "prompt_of", "prompts_in"]

PromptInput = str | tuple[int, ...]


def prompts_in(value: Any, max_tokens: int) -> tuple[PromptInput, ...]:
    """A string, token ids, or an array of either. Raises BadInput."""
    if isinstance(value, str):
        return (checked_text(value, "prompt"),)
    if not isinstance(value, list) or not value:
        raise BadInput(
            "`prompt` must be a string, an array of token ids, or a non-empty array of either.", param="prompt"
        )
    if _is_token(value[0]):
        return (_tokens_in(value, "prompt", max_tokens),)
    if len(value) > MAX_CHOICES:
        raise TooManyItems(f"{len(value)} prompts; at most {MAX_CHOICES} are answered per request.", param="prompt")
    return tuple(
        _tokens_in(entry, param, max_tokens) if isinstance(entry, list) else checked_text(entry, param)
        for param, entry in ((f"prompt[{index}]", entry) for index, entry in enumerate(value))
    )


def _tokens_in(values: list[Any], param: str, max_tokens: int) -> tuple[int, ...]:
    refuse_more_than(max_tokens, len(values), param)  # first: looking at 800,000 ids one by one takes seconds
    if not values or not all(map(_is_token, values)):
        raise BadInput(f"`{param}` must be a non-empty array of integer token ids.", param=param, code="invalid_type")
    if min(values) < 0:
        raise BadInput(f"`{param}` has the token id {min(values)}; ids begin at 0.", param=param)
    return tuple(values)


def _is_token(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


async def prompt_of(chat: ChatModel, prompt: PromptInput) -> Prompt:
    """The prompt as it is sent, counted. Raises BadInput, InputTooLong or Unsupported."""
    if isinstance(prompt, str):
        return await prompt_of_text(chat, prompt, "prompt")
    if chat.model.chat_backend.kind == "openai":
        if chat.tokenizer is not None:
            chat.tokenizer.refuse_unknown(prompt, "prompt")
        return Prompt("", len(prompt), prompt)
    if chat.tokenizer is None:
        raise Unsupported("`prompt` as token ids is not available with this model; send text.", param="prompt")
    text = await chat.tokenizer.text_of(prompt, "prompt")
    return Prompt(_without_start(text, chat.tokenizer), len(prompt))


def _without_start(text: str, tokenizer: ChatTokenizer) -> str:
    """The engine puts the token that begins every text there itself, so ids without it cannot be passed on."""
    if not text.startswith(tokenizer.added_start):
        raise BadInput(
            f"`prompt` does not begin with the token {tokenizer.added_start!r}, which this model's server puts before "
            "every prompt. Begin with it, or send the text instead.",
            param="prompt",
            code="token_ids_not_canonical",
        )
    return text.removeprefix(tokenizer.added_start)


def echo_of(chat: ChatModel, prompt: PromptInput) -> str:
    """The prompt as text, to be put before its answers. Raises Unsupported where only the upstream can tell it."""
    if isinstance(prompt, str):
        return prompt
    if chat.tokenizer is None:
        raise Unsupported("`echo` of token ids is not available with this model; send text.", param="echo")
    return str(chat.tokenizer.tokenizer.decode(list(prompt), skip_special_tokens=False))
