"""Exact token counts, and the tokens that only the chat template may write."""

import asyncio
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from zooserve.errors import BadInput, InputTooLong

__all__ = ["ChatTokenizer", "load_tokenizer", "refuse_more_than"]

# The shapes that control tokens have in the open checkpoints; a template's own literals are added to these.
_CONTROL = re.compile(r"<\|[^|]*\|>|</?s>|\[/?INST\]|<(bos|eos|start_of_turn|end_of_turn)>")
# Below this an encoding costs a few milliseconds; beyond it the event loop should not wait.
_INLINE_CHARACTERS = 8_192
_INLINE_IDS = 2_048


@dataclass(frozen=True)
class ChatTokenizer:
    """A checkpoint's tokenizer, counting as the engine does: special tokens in the rendered prompt are parsed."""

    tokenizer: Tokenizer
    control_tokens: tuple[str, ...]
    """Tokens that start or end a turn. Content that holds one would forge turns, so it is refused."""
    longest_token_bytes: int
    added_start: str = ""
    """The token that the tokenizer puts before every text, where it does; an engine that is sent text does it too."""

    async def count_prompt(self, prompt: str, limit: int, param: str) -> int:
        """The prompt's tokens. Raises InputTooLong when there are more than `limit`."""
        at_least = -(-len(prompt.encode()) // self.longest_token_bytes)
        if at_least > limit:  # no need to tokenize megabytes to know
            raise _too_long(f"at least {at_least}", limit, param)
        if len(prompt) > _INLINE_CHARACTERS:
            count = await asyncio.to_thread(self.count, prompt)
        else:
            count = self.count(prompt)
        refuse_more_than(limit, count, param)
        return count

    def count(self, text: str) -> int:
        """How many tokens the text has, none added."""
        return len(self.tokenizer.encode(text, add_special_tokens=False).ids)

    async def text_of(self, ids: Sequence[int], param: str) -> str:
        """As `decode`, without holding up the event loop."""
        return self.decode(ids, param) if len(ids) <= _INLINE_IDS else await asyncio.to_thread(self.decode, ids, param)

    def decode(self, ids: Sequence[int], param: str) -> str:
        """The text that the engine would tokenize to exactly these ids. Raises BadInput when there is none."""
        self.refuse_unknown(ids, param)
        text = str(self.tokenizer.decode(list(ids), skip_special_tokens=False))
        if self.tokenizer.encode(text, add_special_tokens=False).ids != list(ids):
            raise BadInput(
                f"Invalid '{param}': these token ids are not how this model writes their text, so they cannot be "
                "passed on unchanged. Send the text instead.",
                param=param,
                code="token_ids_not_canonical",
            )
        return text

    def refuse_unknown(self, ids: Sequence[int], param: str) -> None:
        """Raise BadInput for an id that is no token of this model."""
        size = self.tokenizer.get_vocab_size()
        for position, token in enumerate(ids):
            if not 0 <= token < size:
                raise BadInput(
                    f"Invalid '{param}': token {token} at position {position} is not in this model's vocabulary of "
                    f"{size} tokens.",
                    param=param,
                )

    def refuse_control_tokens(self, text: str, param: str) -> None:
        """Raise BadInput when the text holds a token that only the template may write."""
        found = self._control.search(text)
        if found is not None:
            raise BadInput(
                f"Invalid '{param}': it holds {found[0]!r}, which this model reads as the border of a turn. Remove or "
                "escape it; /v1/completions takes raw prompts.",
                param=param,
                code="control_token_in_content",
            )

    @cached_property
    def _control(self) -> re.Pattern[str]:
        return _any_of(self.control_tokens)


def _any_of(tokens: Iterable[str]) -> re.Pattern[str]:
    """Finds any of them in one pass: one by one, 250 of them took 16 s over 8 MB of `<|` (measured)."""
    beginnings: dict[str, Any] = {}
    for token in filter(None, tokens):
        place = beginnings
        for character in token:
            place = place.setdefault(character, {})
        place[""] = {}
    return re.compile(_alternatives(beginnings) if beginnings else "(?!)")


def _alternatives(beginnings: Mapping[str, Any]) -> str:
    """What may follow; nothing more where a token ends."""
    if "" in beginnings:
        return ""
    return f"(?:{'|'.join(re.escape(first) + _alternatives(rest) for first, rest in beginnings.items())})"


def refuse_more_than(limit: int, tokens: int, param: str) -> None:
    """Raises InputTooLong if the prompt has more tokens than the model takes."""
    if tokens > limit:
        raise _too_long(str(tokens), limit, param)


def _too_long(count: str, limit: int, param: str) -> InputTooLong:
    return InputTooLong(
        f"This model's maximum context length is {limit} tokens, prompt and answer together. However, your {param} "
        f"came to {count} tokens. Shorten the {param}.",
        param=param,
    )


def load_tokenizer(path: Path, template_source: str) -> ChatTokenizer:
    """Read a tokenizer.json; every special token that the template writes, or that looks like one, is a control one."""
    source = path.read_text(encoding="utf-8")
    tokenizer = Tokenizer.from_str(source)
    special = [entry["content"] for entry in json.loads(source).get("added_tokens", []) if entry.get("special")]
    control = tuple(token for token in special if token in template_source or _CONTROL.fullmatch(token))
    longest = max(len(token.encode()) for token in tokenizer.get_vocab())
    added = tokenizer.encode("", add_special_tokens=True).tokens
    return ChatTokenizer(tokenizer, control, longest, added[0] if added else "")
