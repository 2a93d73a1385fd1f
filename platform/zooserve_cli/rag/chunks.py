"""Documents cut into passages that an embedding model reads whole: at headings, then as the SDK splits."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from zooserve.sdk.splitting import TokenCount, split
from zooserve_cli.rag.corpus import Page

__all__ = ["Passage", "cut"]

_UNDERLINE = re.compile(r"^([=*\-~^])\1{2,}\s*$")


@dataclass(frozen=True)
class Passage:
    """Which page it is from, under which heading, and its text."""

    title: str
    source: str
    heading: str
    text: str

    @property
    def embedded(self) -> str:
        """What is embedded and reranked: the passage under its heading."""
        return f"{self.heading}\n{self.text}"


def cut(pages: Iterable[Page], max_tokens: int, tokens: TokenCount) -> Iterator[Passage]:
    """The passages of all pages, none longer than `max_tokens` with its heading.

    A single word beyond that is cut by characters.
    """
    for page in pages:
        for heading, body in _sections(page):
            for text in split(body, max(1, max_tokens - tokens(heading)), tokens):
                yield Passage(page.title, page.source, heading, text)


def _sections(page: Page) -> Iterator[tuple[str, str]]:
    """The text under each heading: a line that the next one underlines."""
    heading, lines = page.title, list[str]()
    for line in page.text.splitlines():
        if _UNDERLINE.match(line) and lines and lines[-1].strip():
            title = lines.pop().strip()
            yield heading, "\n".join(lines).strip()
            heading, lines = title[:80], []
        else:
            lines.append(line)
    yield heading, "\n".join(lines).strip()
