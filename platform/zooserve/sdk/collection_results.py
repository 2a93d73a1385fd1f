"""What a collection's calls return."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from zooserve.sdk.index import Index

__all__ = ["Described", "Hit", "Upserted"]


@dataclass(frozen=True)
class Hit:
    """A chunk found. `score` is the reranker's if it reranked, else the search's, which `found_score` always is.

    The search's is a cosine; of a hybrid search it is the sum of reciprocal ranks. `id` is as it was given, `point` as
    Qdrant has it; `document` and `chunk` say which chunk of which document it is, `payload` holds the caller's keys.
    """

    id: int | str
    text: str
    score: float
    found_score: float
    document: str | None = None
    chunk: int | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)
    point: int | str = ""

    def scored(self, score: float) -> "Hit":
        """The same with a reranker's score."""
        return replace(self, score=score)


@dataclass(frozen=True)
class Upserted:
    """What an upsert did, in chunks."""

    embedded: int = 0
    """New or changed, sent to the model and stored."""
    unchanged: int = 0
    """Stored before with the same text and payload; nothing was done."""
    updated: int = 0
    """Of the same text with another payload, which was stored without embedding."""
    removed: int = 0
    """Of older versions of documents, or, by `sync`, of what was not given."""

    @property
    def chunks(self) -> int:
        """How many were given and are stored."""
        return self.embedded + self.unchanged + self.updated

    def __add__(self, other: "Upserted") -> "Upserted":
        return Upserted(
            self.embedded + other.embedded,
            self.unchanged + other.unchanged,
            self.updated + other.updated,
            self.removed + other.removed,
        )


@dataclass(frozen=True)
class Described:
    """A collection as it is now: its name, the Qdrant collection behind it, whose vectors it holds, and how many."""

    name: str
    physical: str
    index: Index
    points: int
