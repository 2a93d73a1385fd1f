"""Reading answers into results: whatever is not as the API has it raises UnreadableAnswer."""

import base64
import json
import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from zooserve.errors import AnswerBrokeOff
from zooserve.sdk.faults import unreadable
from zooserve.sdk.results import (
    Classification,
    Classified,
    Embeddings,
    ModelCard,
    Origin,
    QueryReading,
    RankedDocument,
    Reranked,
    SparseEmbeddings,
    SparseVector,
    native_floats,
)

__all__ = [
    "Answer",
    "broke_off",
    "classified",
    "embeddings",
    "joined_classified",
    "joined_embeddings",
    "joined_ranks",
    "joined_sparse",
    "model_card",
    "model_cards",
    "query_reading",
    "reranked",
    "sparse_embeddings",
]


@dataclass(frozen=True)
class Answer:
    """A whole answer of status 200: its headers by their names in small letters, and its body."""

    url: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def request_id(self) -> str:
        """Empty if whoever answered gave none."""
        return self.headers.get("x-request-id", "")

    def json(self) -> Any:
        """The body. Raises UnreadableAnswer unless it is JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as exc:
            beginning = self.body[:100].decode("utf-8", "replace")
            raise unreadable(self.url, f"it is not JSON but begins {beginning!r}", self.request_id) from exc

    def origin(self) -> dict[str, str]:
        """Model, version and request id. Raises UnreadableAnswer without them."""
        with self.being_read():
            return {
                "model": self.headers["x-zooserve-model"],
                "version": self.headers["x-zooserve-version"],
                "request_id": self.request_id,
            }

    def spaced_origin(self) -> dict[str, str]:
        """The same and the embedding space."""
        with self.being_read():
            return self.origin() | {"space": self.headers["x-zooserve-embedding-space"]}

    @contextmanager
    def being_read(self) -> Iterator[None]:
        """Turns what is missing or of another kind than expected into UnreadableAnswer."""
        try:
            yield
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as exc:
            raise unreadable(self.url, f"its answer lacks what was asked for ({exc!r})", self.request_id) from exc


def broke_off(head: Answer, why: str) -> AnswerBrokeOff:
    """The error of a stream that ends before its last event."""
    return AnswerBrokeOff(
        f"The answer of {head.url} broke off in the middle ({why}); what came is in the stream's `text`. Ask again.",
        request_id=head.request_id,
    )


def embeddings(answer: Answer, count: int) -> Embeddings:
    """Of /v1/embeddings with base64, for this many texts."""
    with answer.being_read():
        body = answer.json()
        rows = [base64.b64decode(row["embedding"]) for row in _ordered(body["data"], count)]
        dimensions = len(rows[0]) // 4
        if dimensions == 0 or any(len(row) != 4 * dimensions for row in rows):
            raise ValueError("vectors of unlike sizes")
        return Embeddings(
            **answer.spaced_origin(),
            dimensions=dimensions,
            buffer=_finite(native_floats(b"".join(rows))),
            prompt_tokens=int(body["usage"]["prompt_tokens"]),
        )


def sparse_embeddings(answer: Answer, count: int) -> SparseEmbeddings:
    """Of /embed_sparse, for this many texts."""
    with answer.being_read():
        rows = answer.json()
        if len(rows) != count:
            raise ValueError(f"{len(rows)} vectors for {count} texts")
        vectors = [
            SparseVector(
                array("I", [entry["index"] for entry in row]),
                array("f", [entry["value"] for entry in row]),
            )
            for row in rows
        ]
        return SparseEmbeddings(**answer.spaced_origin(), vectors=vectors)


def reranked(answer: Answer, documents: Sequence[str], first: int) -> Reranked:
    """Of /v2/rerank, for these documents, of which the first has this place in the caller's list."""
    with answer.being_read():
        body = answer.json()
        if len(body["results"]) != len(documents):
            raise ValueError(f"{len(body['results'])} results for {len(documents)} documents")
        results = [
            RankedDocument(first + row["index"], float(row["relevance_score"]), documents[row["index"]])
            for row in body["results"]
        ]
        return Reranked(**answer.origin(), results=results, prompt_tokens=int(body["usage"]["prompt_tokens"]))


def classified(answer: Answer, count: int) -> Classified:
    """Of /v1/classify, for this many items."""
    with answer.being_read():
        body = answer.json()
        results = [
            Classification(row["label"], tuple(row["labels"]), row["scores"], tuple(map(float, row["probs"])))
            for row in _ordered(body["data"], count)
        ]
        return Classified(**answer.origin(), results=results, prompt_tokens=int(body["usage"]["prompt_tokens"]))


def query_reading(answer: Answer) -> QueryReading:
    """Of /v1/rag_query with base64, for one query."""
    with answer.being_read():
        body = answer.json()
        (row,) = _ordered(body["data"], 1)
        return QueryReading(
            **answer.spaced_origin(),
            vector=_finite(native_floats(base64.b64decode(row["embedding"]))).tolist(),
            injection=float(row["prompt_injection"]["probability"]),
            flagged=bool(row["prompt_injection"]["flagged"]),
            language=str(row["language"]["code"]),
            language_probability=float(row["language"]["probability"]),
            prompt_tokens=int(body["usage"]["prompt_tokens"]),
        )


def model_cards(answer: Answer) -> list[ModelCard]:
    """Of /v1/models."""
    with answer.being_read():
        return [_card(row, answer.request_id) for row in answer.json()["data"]]


def model_card(answer: Answer) -> ModelCard:
    """Of /v1/models/NAME."""
    with answer.being_read():
        return _card(answer.json(), answer.request_id)


def joined_embeddings(parts: Sequence[Embeddings]) -> Embeddings:
    """The parts of one call as one, with the first's request id. They are of one space."""
    first = parts[0]
    buffer = array("f")
    for part in parts:
        buffer.extend(part.buffer)
    return Embeddings(
        model=first.model,
        version=first.version,
        request_id=first.request_id,
        space=first.space,
        dimensions=first.dimensions,
        buffer=buffer,
        prompt_tokens=sum(part.prompt_tokens for part in parts),
    )


def joined_sparse(parts: Sequence[SparseEmbeddings]) -> SparseEmbeddings:
    """The parts of one call as one."""
    first = parts[0]
    vectors = [vector for part in parts for vector in part.vectors]
    return SparseEmbeddings(
        model=first.model, version=first.version, request_id=first.request_id, space=first.space, vectors=vectors
    )


def joined_classified(parts: Sequence[Classified]) -> Classified:
    """The parts of one call as one."""
    return Classified(
        **_origin(parts[0]),
        results=[result for part in parts for result in part.results],
        prompt_tokens=sum(part.prompt_tokens for part in parts),
    )


def joined_ranks(parts: Sequence[Reranked], top_n: int | None) -> Reranked:
    """The parts of one call as one ranking, the best `top_n` (None: all); among equals, each part's order stays.

    A document's relevance does not depend on the others that were sent, so that parts may be merged.
    """
    results = sorted((result for part in parts for result in part.results), key=lambda result: -result.score)
    return Reranked(
        **_origin(parts[0]), results=results[:top_n], prompt_tokens=sum(part.prompt_tokens for part in parts)
    )


def _origin(part: Origin) -> dict[str, str]:
    return {"model": part.model, "version": part.version, "request_id": part.request_id}


def _finite(numbers: "array[float]") -> "array[float]":
    """The numbers. Raises ValueError for NaN and infinity, which any sum that they are part of keeps."""
    if not math.isfinite(sum(numbers)):
        raise ValueError("vectors with numbers that are not finite")
    return numbers


def _ordered(rows: Sequence[Mapping[str, Any]], count: int) -> list[Mapping[str, Any]]:
    ordered = sorted(rows, key=itemgetter("index"))
    if [row["index"] for row in ordered] != list(range(count)):
        raise ValueError(f"{len(rows)} rows for {count} items")
    return ordered


def _card(row: Mapping[str, Any], request_id: str) -> ModelCard:
    return ModelCard(
        name=row["id"],
        version=str(row["version"]),
        task=row["task"],
        ready=bool(row["ready"]),
        aliases=tuple(row.get("aliases") or ()),
        dimensions=row.get("dimensions"),
        space=row.get("embedding_space"),
        labels=tuple(row.get("labels") or ()),
        modality=row.get("modality") or "text",
        limits=row.get("limits") or {},
        licence=row.get("licence") or "",
        description=row.get("description") or "",
        request_id=request_id,
        details=row,
    )
