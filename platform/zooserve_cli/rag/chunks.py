"""Documents cut into passages that an embedding model reads whole: at headings, then paragraphs, lines, words."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from zooserve_cli.rag.corpus import Document

__all__ = ["Chunk", "cut"]

_UNDERLINE = re.compile(r"^([=*\-~^])\1{2,}\s*$")
_BREAKS = (re.compile(r"\n\s*\n"), re.compile(r"\n"), re.compile(r"\s+"))
_JOINTS = ("\n\n", "\n", " ")

TokenCount = Callable[[str], int]
"""How many tokens a text has by itself, special ones not counted."""


@dataclass(frozen=True)
class Chunk:
    """One passage: which document it is from, under which heading, and its text."""

    title: str
    source: str
    heading: str
    text: str

    @property
    def embedded(self) -> str:
        """What is embedded and reranked: the passage under its heading."""
        return f"{self.heading}\n{self.text}"


def cut(documents: Iterable[Document], max_tokens: int, tokens: TokenCount) -> Iterator[Chunk]:
    """The passages of all documents, none longer than `max_tokens` with its heading.

    A single word beyond that is cut by characters.
    """
    for document in documents:
        for heading, body in _sections(document):
            room = max_tokens - tokens(heading)
            for text in _packed(body, room, tokens):
                yield Chunk(document.title, document.source, heading, text)


def _sections(document: Document) -> Iterator[tuple[str, str]]:
    """The text under each heading: a line that the next one underlines."""
    heading, lines = document.title, list[str]()
    for line in document.text.splitlines():
        if _UNDERLINE.match(line) and lines and lines[-1].strip():
            title = lines.pop().strip()
            yield heading, "\n".join(lines).strip()
            heading, lines = title[:80], []
        else:
            lines.append(line)
    yield heading, "\n".join(lines).strip()


def _packed(text: str, room: int, tokens: TokenCount, level: int = 0) -> Iterator[str]:
    """The text in pieces of at most `room` tokens, broken as high up as possible."""
    if not text.strip():
        return
    if tokens(text) <= room:
        yield text.strip("\n")
        return
    if level == len(_BREAKS):
        middle = len(text) // 2
        yield from _packed(text[:middle], room, tokens, level)
        yield from _packed(text[middle:], room, tokens, level)
        return
    yield from _joined(_BREAKS[level].split(text), room, tokens, level)


def _joined(parts: Sequence[str], room: int, tokens: TokenCount, level: int) -> Iterator[str]:
    held: list[str] = []
    size = 0
    for part in parts:
        length = tokens(part)
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
