"""The corpus into the collection: cut, embedded as bulk work where it is new, stored."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from tokenizers import Tokenizer

from zooserve import Chunk, Document
from zooserve.errors import MissingPart
from zooserve.sdk import Collection
from zooserve.sdk.splitting import TokenCount
from zooserve_cli.rag.chunks import Passage, cut
from zooserve_cli.rag.corpus import Page

__all__ = ["Ingested", "Progress", "ingest", "passages_of", "token_count"]

_SPECIAL_TOKENS = 2

Progress = Callable[[int], AbstractContextManager[Callable[[int], None]]]
"""Opened with how many passages there are; what it gives is told how many are done."""


@dataclass(frozen=True)
class Ingested:
    """What the collection holds, and what it took."""

    documents: int
    chunks: int
    model: str
    """`embed@1`."""
    space: str
    """The fingerprint of its embedding space."""
    embedded: int
    """Chunks that were new or had changed."""
    seconds: float

    @property
    def reused(self) -> bool:
        """Whether it was all there from an earlier run."""
        return not self.embedded


def token_count(tokenizer: Path) -> TokenCount:
    """Counts as the embedding model does. Raises MissingPart when its tokenizer is not there."""
    if not tokenizer.is_file():
        raise MissingPart(f"{tokenizer} is not there: run `zooserve fetch`, or run from the platform's checkout.")
    counting = Tokenizer.from_file(str(tokenizer))
    counting.no_truncation()
    counting.no_padding()
    return lambda text: len(counting.encode(text, add_special_tokens=False).ids)


def passages_of(pages: Sequence[Page], max_tokens: int, tokens: TokenCount) -> list[Passage]:
    """Every passage of the pages, none longer than the model reads."""
    return list(cut(pages, max_tokens - _SPECIAL_TOKENS, tokens))


def ingest(docs: Collection, passages: Sequence[Passage], progress: Progress, *, rebuild: bool) -> Ingested:
    """Make the collection hold exactly these passages; what it holds already is not embedded again.

    Raises SpaceMismatch, unless told to rebuild, when the collection holds another embedding version's vectors.
    """
    began = time.perf_counter()
    if rebuild:
        docs.drop()
    with progress(len(passages)) as done:
        stored = docs.sync(_documents(passages), progress=done)
    index = docs.describe().index
    pages = len({passage.source for passage in passages})
    seconds = time.perf_counter() - began
    return Ingested(pages, len(passages), index.release, index.space, stored.embedded, seconds)


def _documents(passages: Sequence[Passage]) -> Iterator[Document]:
    """One document for each page, whose passages follow each other."""
    for source, of_page in groupby(passages, key=lambda passage: passage.source):
        chunks = [Chunk(one.embedded, payload={"title": one.title, "heading": one.heading}) for one in of_page]
        yield Document(source, chunks)
