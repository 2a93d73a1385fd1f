"""Long lists cut into requests, by items and by an estimate of their tokens. Lazy: an endless iterable is no matter.

There is no tokenizer in a light installation. A text is taken for as many tokens as it has bytes in UTF-8, and two more
for the special ones. That is more than it has: WordPiece, unigram and byte-level tokenizers make no more than one token
of a byte, English about one of four; a few compatibility characters, which normalisation spells out, make up to six
(U+FDFA: 18 letters of 3 bytes). A request of 48 Ki estimated tokens is so below the server's 300,000 even of those.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

__all__ = ["MAX_ITEMS", "MAX_TOKENS", "Part", "cut", "estimated_tokens"]

MAX_ITEMS = 256
"""In one request; the server takes 2,048 embeddings, 1,000 documents to rerank, 256 texts to classify."""
MAX_TOKENS = 48 * 2**10
"""Estimated, in one request of several texts; a longer text goes alone."""
_SPECIAL_TOKENS = 2

Item = TypeVar("Item")


@dataclass(frozen=True)
class Part(Generic[Item]):
    """Consecutive items of a list, of which the first has this place in it."""

    first: int
    items: list[Item]


def estimated_tokens(text: str) -> int:
    """At least as many tokens as the text has, but for compatibility characters."""
    return _SPECIAL_TOKENS + (len(text) if text.isascii() else len(text.encode()))


def cut(
    items: Iterable[Item], size_of: Callable[[Any], int], *, max_items: int = MAX_ITEMS, max_size: int = MAX_TOKENS
) -> Iterator[Part[Item]]:
    """Parts in order, each as long as the bounds allow. An item that is larger than a part is a part of its own."""
    first, taken, size = 0, list[Item](), 0
    for place, item in enumerate(items):
        its_size = size_of(item)
        if taken and (len(taken) == max_items or size + its_size > max_size):
            yield Part(first, taken)
            first, taken, size = place, [], 0
        taken.append(item)
        size += its_size
    if taken:
        yield Part(first, taken)
