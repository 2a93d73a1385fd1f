"""One question answered: read (vector and verdict) -> search -> rerank -> chat over the best passages."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from zooserve import Zoo
from zooserve.sdk import Collection, Hit, QueryReading, RankedDocument

__all__ = ["Answer", "Cited", "Listener", "Ran", "answer"]

_FOUND = 16
_CITED = 3
_MAX_TOKENS = 128
_INSTRUCTION = (
    "You answer questions about Python. Use only the numbered passages. Answer in two or three sentences. "
    "If the passages do not hold the answer, say so."
)


@dataclass(frozen=True)
class Ran:
    """One step: how long it took and which model, at which version, did it."""

    step: str
    milliseconds: float
    model: str
    version: str


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


@dataclass(frozen=True)
class _Spoken:
    """A chat answer; `first` is the time to its first text."""

    text: str
    completion_tokens: int
    first: Ran
    whole: Ran


def answer(zoo: Zoo, docs: Collection, question: str, listener: Listener, *, allow_flagged: bool) -> Answer:
    """The answer to one question. A flagged question is refused before it is searched for, unless allowed."""
    began = time.perf_counter()
    read = zoo.rag_query(question)
    was_read = Ran("rag_query", _since(began), read.model, read.version)
    if read.flagged and not allow_flagged:
        return Answer(question, read.injection, True, True, (), "", 0, (was_read,))
    hits, searched = _search(docs, question, read)
    cited, ranked = _reranked(zoo, question, hits)
    listener.passages(cited)
    spoken = _chat(zoo, _messages(question, cited), listener.text)
    steps = (was_read, searched, ranked, spoken.first, spoken.whole)
    return Answer(question, read.injection, read.flagged, False, cited, spoken.text, spoken.completion_tokens, steps)


def _search(docs: Collection, question: str, read: QueryReading) -> tuple[list[Hit], Ran]:
    began = time.perf_counter()
    hits = docs.search(question, _FOUND, reading=read)
    return hits, Ran("search", _since(began), "Qdrant", "-")


def _reranked(zoo: Zoo, question: str, hits: Sequence[Hit]) -> tuple[tuple[Cited, ...], Ran]:
    """The best passages. `Collection.search(rerank=…)` does this too; here each step is timed by itself."""
    began = time.perf_counter()
    ranked = zoo.rerank(question, [hit.text for hit in hits], top_n=_CITED)
    cited = tuple(_cited(number, hits[one.index], one) for number, one in enumerate(ranked, start=1))
    return cited, Ran("rerank", _since(began), ranked.model, ranked.version)


def _cited(number: int, hit: Hit, ranked: RankedDocument) -> Cited:
    heading = hit.payload["heading"]
    text = hit.text.removeprefix(f"{heading}\n")
    return Cited(number, hit.payload["title"], hit.document or "", heading, text, ranked.score)


def _chat(zoo: Zoo, messages: list[dict[str, str]], on_text: Callable[[str], None]) -> _Spoken:
    """A greedy answer, handed to `on_text` as it comes."""
    began = time.perf_counter()
    first_ms = 0.0
    with zoo.chat_stream(messages, max_tokens=_MAX_TOKENS, temperature=0) as stream:
        for text in stream:
            first_ms = first_ms or _since(began)
            on_text(text)
        done = stream.answer
    whole = Ran("chat", _since(began), done.model, done.version)
    first = Ran("first text", first_ms, done.model, done.version)
    return _Spoken(done.text, done.usage.completion_tokens if done.usage else 0, first, whole)


def _messages(question: str, cited: Sequence[Cited]) -> list[dict[str, str]]:
    passages = "\n\n".join(f"[{passage.number}] {passage.heading}\n{passage.text}" for passage in cited)
    return [
        {"role": "system", "content": _INSTRUCTION},
        {"role": "user", "content": f"Passages:\n\n{passages}\n\nQuestion: {question}"},
    ]


def _since(began: float) -> float:
    return 1000 * (time.perf_counter() - began)
