"""One question answered: read (vector and verdict) -> search -> rerank -> chat over the best passages."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from zooserve_cli.rag.api import Api, Ran, Spoken
from zooserve_cli.rag.store import Hit, Store

__all__ = ["Answer", "Cited", "Listener", "answer"]

_FOUND = 16
_CITED = 3
_MAX_TOKENS = 128
_INSTRUCTION = (
    "You answer questions about Python. Use only the numbered passages. Answer in two or three sentences. "
    "If the passages do not hold the answer, say so."
)


@dataclass(frozen=True)
class Cited:
    """A passage the answer was made from."""

    number: int
    title: str
    source: str
    heading: str
    text: str
    score: float


@dataclass(frozen=True)
class Answer:
    """Everything one question led to; `text` is empty when it was refused."""

    question: str
    injection: float
    flagged: bool
    refused: bool
    cited: tuple[Cited, ...]
    text: str
    completion_tokens: int
    steps: tuple[Ran, ...]

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


@dataclass(frozen=True)
class Listener:
    """Who is told of an answer while it is made."""

    passages: Callable[[Sequence[Cited]], None]
    text: Callable[[str], None]


def answer(api: Api, store: Store, question: str, listener: Listener, *, allow_flagged: bool) -> Answer:
    """The answer to one question. A flagged question is refused before it is searched for, unless allowed."""
    read = api.read_query(question)
    if read.flagged and not allow_flagged:
        return Answer(question, read.injection, True, True, (), "", 0, (read.ran,))
    hits, searched = _search(store, read.vector)
    ranked = api.rerank(question, [hit.chunk.embedded for hit in hits], _CITED)
    cited = _cited(hits, ranked.places, ranked.scores)
    listener.passages(cited)
    spoken: Spoken = api.chat(_messages(question, cited), _MAX_TOKENS, listener.text)
    steps = (read.ran, searched, ranked.ran, spoken.first, spoken.whole)
    return Answer(question, read.injection, read.flagged, False, cited, spoken.text, spoken.completion_tokens, steps)


def _search(store: Store, vector: Sequence[float]) -> tuple[list[Hit], Ran]:
    began = time.perf_counter()
    hits = store.search(vector, _FOUND)
    return hits, Ran("search", 1000 * (time.perf_counter() - began), "Qdrant", "-")


def _cited(hits: Sequence[Hit], places: Sequence[int], scores: Sequence[float]) -> tuple[Cited, ...]:
    return tuple(
        Cited(number, chunk.title, chunk.source, chunk.heading, chunk.text, score)
        for number, (chunk, score) in enumerate(
            ((hits[place].chunk, score) for place, score in zip(places, scores, strict=True)), start=1
        )
    )


def _messages(question: str, cited: Sequence[Cited]) -> list[dict[str, str]]:
    passages = "\n\n".join(f"[{passage.number}] {passage.heading}\n{passage.text}" for passage in cited)
    return [
        {"role": "system", "content": _INSTRUCTION},
        {"role": "user", "content": f"Passages:\n\n{passages}\n\nQuestion: {question}"},
    ]
