"""What calls return: frozen dataclasses that say which model, version and embedding space answered.

Nothing here needs numpy; `.numpy()` is there for those who have it.
"""

import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zooserve.errors import MissingPart, SpaceMismatch

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "Classification",
    "Classified",
    "Embeddings",
    "ModelCard",
    "QueryReading",
    "RankedDocument",
    "Reranked",
    "SparseEmbeddings",
    "SparseVector",
    "agreed",
]


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Who answered. `version` is the release's, as text; `request_id` finds the call in logs and traces."""

    model: str
    version: str
    request_id: str


@dataclass(frozen=True, kw_only=True)
class SpacedOrigin(Origin):
    """The same of vectors: `space` is the fingerprint of the embedding space that they belong to."""

    space: str


@dataclass(frozen=True, kw_only=True)
class Embeddings(SpacedOrigin):
    """Vectors in the order of their texts, `dimensions` float32 each, one after the other in `buffer`."""

    dimensions: int
    buffer: "array[float]" = field(repr=False)
    prompt_tokens: int

    def __len__(self) -> int:
        """How many vectors there are."""
        return len(self.buffer) // self.dimensions

    def __getitem__(self, place: int) -> list[float]:
        """One vector. Raises IndexError beyond the last."""
        start = range(len(self))[place] * self.dimensions
        return self.buffer[start : start + self.dimensions].tolist()

    def __iter__(self) -> Iterator[list[float]]:
        """The vectors, each made when it is asked for."""
        return map(self.__getitem__, range(len(self)))

    @property
    def vectors(self) -> list[list[float]]:
        """All of them as lists of floats, made anew at each access: about 8 times the buffer."""
        return list(self)

    def numpy(self) -> "npt.NDArray[np.float32]":
        """float32 of shape (texts, dimensions), a view of the buffer. Raises MissingPart without numpy."""
        try:
            import numpy as np
        except ImportError as exc:
            raise MissingPart("numpy is not installed: `pip install numpy`, or use `.vectors`.") from exc
        return np.frombuffer(self.buffer, dtype=np.float32).reshape(len(self), self.dimensions)


@dataclass(frozen=True)
class SparseVector:
    """Words of a vocabulary by ascending index, and their weights (float32)."""

    indices: "array[int]"
    values: "array[float]"

    def __len__(self) -> int:
        """How many words have a weight."""
        return len(self.indices)


@dataclass(frozen=True, kw_only=True)
class SparseEmbeddings(SpacedOrigin):
    """Sparse vectors in the order of their texts."""

    vectors: Sequence[SparseVector] = field(repr=False)

    def __len__(self) -> int:
        """How many vectors there are."""
        return len(self.vectors)

    def __getitem__(self, place: int) -> SparseVector:
        """One vector."""
        return self.vectors[place]

    def __iter__(self) -> Iterator[SparseVector]:
        """The vectors."""
        return iter(self.vectors)


@dataclass(frozen=True)
class RankedDocument:
    """A document, its place in the list that was sent, and its relevance between 0 and 1."""

    index: int
    score: float
    document: str


@dataclass(frozen=True, kw_only=True)
class Reranked(Origin):
    """Documents, the most relevant first."""

    results: Sequence[RankedDocument]
    prompt_tokens: int

    def __len__(self) -> int:
        """How many documents there are."""
        return len(self.results)

    def __getitem__(self, place: int) -> RankedDocument:
        """One document by its rank."""
        return self.results[place]

    def __iter__(self) -> Iterator[RankedDocument]:
        """The documents."""
        return iter(self.results)


@dataclass(frozen=True)
class Classification:
    """Of one item: the label it has (None if none is likelier than not), all labels above 0.5, and probabilities.

    `scores` are by label, of a model with many labels the five likeliest; `probs` are all, in the order of the model's.
    """

    label: str | None
    labels: Sequence[str]
    scores: Mapping[str, float]
    probs: Sequence[float] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Classified(Origin):
    """Classifications in the order of the items."""

    results: Sequence[Classification]
    prompt_tokens: int

    def __len__(self) -> int:
        """How many items there are."""
        return len(self.results)

    def __getitem__(self, place: int) -> Classification:
        """One item's."""
        return self.results[place]

    def __iter__(self) -> Iterator[Classification]:
        """The classifications."""
        return iter(self.results)


@dataclass(frozen=True, kw_only=True)
class QueryReading(SpacedOrigin):
    """Of one query: its vector in the space of `embed`, the probability of a prompt injection, its language.

    `flagged` from a probability of 0.5 on; `language` is an ISO 639 code, a guess below a probability of 0.5.
    """

    vector: list[float] = field(repr=False)
    injection: float
    flagged: bool
    language: str
    language_probability: float
    prompt_tokens: int


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """A model as the platform lists it; `details` is everything it says of it."""

    name: str
    version: str
    task: str
    ready: bool
    aliases: Sequence[str] = ()
    dimensions: int | None = None
    space: str | None = None
    labels: Sequence[str] = ()
    modality: str = "text"
    limits: Mapping[str, int] = field(default_factory=dict)
    licence: str = ""
    description: str = ""
    request_id: str = ""
    details: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def model(self) -> str:
        """Its name, as answers have it."""
        return self.name


def agreed(parts: Sequence[Origin]) -> None:
    """Raises SpaceMismatch unless all parts of a call were answered by one model, version and space."""
    first = parts[0]
    for other in parts[1:]:
        if _identity(other) != _identity(first):
            raise SpaceMismatch(
                f"Parts of one call were answered by {_told(first)} and by {_told(other)}: a release began or ended "
                f"meanwhile. Call again, or pin one with model={first.model + '@' + first.version!r}."
            )


def _identity(origin: Origin) -> tuple[str, str, str | None]:
    return origin.model, origin.version, getattr(origin, "space", None)


def _told(origin: Origin) -> str:
    space = getattr(origin, "space", None)
    return f"{origin.model}@{origin.version}" + (f" (space {space})" if space else "")


def native_floats(little_endian: bytes) -> "array[float]":
    """Little-endian float32 as an array. Raises ValueError unless they are whole."""
    floats = array("f", little_endian)
    if sys.byteorder == "big":
        floats.byteswap()
    return floats
