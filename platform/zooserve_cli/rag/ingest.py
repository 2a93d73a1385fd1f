"""The corpus into the collection, once: cut, embedded as bulk work, stored."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from zooserve.errors import MissingPart
from zooserve_cli.rag.api import Api
from zooserve_cli.rag.chunks import Chunk, TokenCount, cut
from zooserve_cli.rag.corpus import Document
from zooserve_cli.rag.store import Store, digest_of

__all__ = ["Ingested", "Progress", "chunks_of", "ingest", "token_count"]

_SPECIAL_TOKENS = 2
# The router cuts this into chunks of its own; more would only make the progress bar jump.
_TEXTS_PER_REQUEST = 64


Progress = Callable[[int], AbstractContextManager[Callable[[int], None]]]
"""Opened with how many passages there are; what it gives is told how many are done."""


@dataclass(frozen=True)
class Ingested:
    """What the collection holds, and what it took."""

    documents: int
    chunks: int
    space: str
    seconds: float
    reused: bool
    """Whether it was there from an earlier run."""


def token_count(tokenizer: Path) -> TokenCount:
    """Counts as the embedding model does. Raises MissingPart when its tokenizer is not there."""
    if not tokenizer.is_file():
        raise MissingPart(f"{tokenizer} is not there: run `zooserve fetch`, or run from the platform's checkout.")
    counting = Tokenizer.from_file(str(tokenizer))
    counting.no_truncation()
    counting.no_padding()
    return lambda text: len(counting.encode(text, add_special_tokens=False).ids)


def chunks_of(documents: Sequence[Document], max_tokens: int, tokens: TokenCount) -> list[Chunk]:
    """Every passage of the documents, none longer than the model reads."""
    return list(cut(documents, max_tokens - _SPECIAL_TOKENS, tokens))


def ingest(
    api: Api, store: Store, documents: Sequence[Document], chunks: Sequence[Chunk], progress: Progress, *, rebuild: bool
) -> Ingested:
    """Make the collection hold exactly these passages; nothing is done if it does already.

    Raises SpaceMismatch, unless told to rebuild, when the collection holds another embedding version's vectors.
    """
    began = time.perf_counter()
    vectors, ran = api.embed(["zooserve"])
    digest = digest_of(chunks)
    if not rebuild:
        store.require_space(ran.space)
    reused = not rebuild and store.holds(digest, len(chunks))
    if not reused:
        store.begin(ran.space, digest, len(vectors[0]))
        _embed_all(api, store, chunks, progress)
    return Ingested(len(documents), len(chunks), ran.space, time.perf_counter() - began, reused)


def _embed_all(api: Api, store: Store, chunks: Sequence[Chunk], progress: Progress) -> None:
    with progress(len(chunks)) as done:
        for start in range(0, len(chunks), _TEXTS_PER_REQUEST):
            part = chunks[start : start + _TEXTS_PER_REQUEST]
            vectors, _ = api.embed([chunk.embedded for chunk in part])
            store.add(start, part, vectors)
            done(start + len(part))
