"""The corpus into the collection: cut, embedded as bulk work where it is new, stored."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import groupby

from zooserve import Chunk, Document
from zooserve.sdk import Collection
from zooserve.sdk.splitting import estimated_tokens
from zooserve_cli.rag.chunks import Passage, cut
from zooserve_cli.rag.corpus import Page

__all__ = ["Ingested", "Progress", "ingest", "passages_of"]

_SURE = 0.8
"""Of what the model reads, by estimate: docstrings are full of signs, which have more tokens than are estimated."""

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


def passages_of(pages: Sequence[Page], max_tokens: int) -> list[Passage]:
    """Every passage of the pages, none longer than the model reads, by estimate: no tokenizer is at hand elsewhere."""
    return list(cut(pages, int(max_tokens * _SURE), estimated_tokens))


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
