"""Texts cut into chunks that an embedding model reads whole: at paragraphs, then lines, sentences, words.

No tokenizer is needed: tokens are estimated, rather too many than too few. Who has the model's gives its count.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from zooserve.errors import BadInput

__all__ = ["TokenCount", "estimated_tokens", "split"]

TokenCount = Callable[[str], int]
"""How many tokens a text has by itself, special ones not counted."""

_BREAKS = (re.compile(r"\n\s*\n"), re.compile(r"\n"), re.compile(r"(?<=[.!?])\s+"), re.compile(r"\s+"))
_JOINTS = ("\n\n", "\n", " ", " ")
_PIECES = re.compile(r"([A-Za-z]+)|([0-9]+)|[^\sA-Za-z0-9]")


def estimated_tokens(text: str) -> int:
    """About how many tokens a model of English sees: one for 4 letters of a word, 2 digits, or another character.

    >>> estimated_tokens("A text, of 2026.")
    7
    """
    return sum(_tokens(piece) for piece in _PIECES.finditer(text))


def split(text: str, max_tokens: int = 220, tokens: TokenCount = estimated_tokens) -> list[str]:
    """The text in chunks of at most `max_tokens`, broken as high up as possible; nothing but white space is lost.

    `embed` reads 254 besides its two special tokens: 220 leaves room for texts that have more than is estimated. A
    single word beyond the limit is cut by characters. Raises BadInput for what is no text and for a limit below 1.

    >>> split("One paragraph.\\n\\nAnother one.", max_tokens=6)
    ['One paragraph.', 'Another one.']
    """
    if not isinstance(text, str):
        raise BadInput(
            f"What is to be split is of type {type(text).__name__}; it must be a text. Read files as text, with "
            "encoding='utf-8' and errors='replace' where they may hold anything else.",
            param="text",
        )
    if max_tokens < 1:
        raise BadInput(f"`max_tokens` is {max_tokens}; it must be at least 1.", param="max_tokens")
    return list(_packed(text, max_tokens, tokens, 0))


def _packed(text: str, room: int, tokens: TokenCount, level: int) -> Iterator[str]:
    if not text.strip():
        return
    if _counted(text, room, tokens) <= room or len(text) == 1:
        yield text.strip("\n")
    elif level == len(_BREAKS):
        middle = len(text) // 2
        yield from _packed(text[:middle], room, tokens, level)
        yield from _packed(text[middle:], room, tokens, level)
    else:
        yield from _joined(_BREAKS[level].split(text), room, tokens, level)


def _joined(parts: Sequence[str], room: int, tokens: TokenCount, level: int) -> Iterator[str]:
    held: list[str] = []
    size = 0
    for part in parts:
        length = _counted(part, room, tokens)
        if held and size + length > room:
            yield _JOINTS[level].join(held).strip("\n")
            held, size = [], 0
        if length > room:
            yield from _packed(part, room, tokens, level + 1)
        elif part.strip():
            held.append(part)
            size += length
    if held:
        yield _JOINTS[level].join(held).strip("\n")


def _counted(text: str, room: int, tokens: TokenCount) -> int:
    """How many tokens; of a text that has more than there is room for, that alone.

    Counted to its end at every level, a text of 15 MB without a space took 37 s.
    """
    if tokens is not estimated_tokens:
        return tokens(text)
    count = 0
    for piece in _PIECES.finditer(text):
        count += _tokens(piece)
        if count > room:
            break
    return count


def _tokens(piece: re.Match[str]) -> int:
    letters, digits = piece.groups()
    if letters:
        return (len(letters) + 3) // 4
    return (len(digits) + 1) // 2 if digits else 1
