"""Passages, filters and queries as Qdrant's models have them, and back. qdrant-client is loaded at the first use."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from zooserve.errors import BadInput, MissingPart, SpaceMismatch
from zooserve.sdk.chunks import Passage, document_names
from zooserve.sdk.collection_results import Hit
from zooserve.sdk.index import DENSE, SPARSE, Index
from zooserve.sdk.results import SparseVector

__all__ = [
    "dense_size",
    "documents_named",
    "filter_of",
    "fused",
    "has_sparse",
    "hit_of",
    "ids_of",
    "named",
    "payload_of",
    "point",
    "qdrant_models",
]


def qdrant_models() -> Any:
    """`qdrant_client.models`. Raises MissingPart where it is not installed."""
    try:
        from qdrant_client import models
    except ImportError as exc:
        raise MissingPart("Collections need Qdrant's client: `pip install 'zooserve[rag]'`, or qdrant-client.") from exc
    return models


def payload_of(passage: Passage, index: Index) -> dict[str, Any]:
    """All of a point's payload, its text under the key that the collection has it."""
    if index.text_key == "text":
        return passage.payload
    rest = {key: value for key, value in passage.payload.items() if key != "text"}
    return {**rest, index.text_key: passage.text}


def point(passage: Passage, index: Index, dense: Sequence[float], sparse: SparseVector | None) -> Any:
    """A PointStruct. The dense vector has `index.dimensions` numbers."""
    models = qdrant_models()
    vector: Any = dense if sparse is None else {DENSE: dense, SPARSE: _sparse(models, sparse)}
    return models.PointStruct(id=passage.point, vector=vector, payload=payload_of(passage, index))


def hit_of(found: Any, index: Index) -> Hit:
    """A ScoredPoint as what a search returns."""
    payload = dict(found.payload or {})
    text = payload.pop(index.text_key, "")
    payload.pop("sha256", None)
    given = payload.pop("id", None)
    return Hit(
        id=found.id if given is None else given,
        point=found.id,
        text=text if isinstance(text, str) else "",
        score=float(found.score),
        found_score=float(found.score),
        document=payload.pop("document", None),
        chunk=payload.pop("chunk", None),
        payload=payload,
    )


def filter_of(given: Any) -> Any:
    """A `models.Filter` as it is; a mapping says which payload must be equal, a list in it which may be.

    Raises BadInput for anything else.
    """
    models = qdrant_models()
    if given is None or isinstance(given, models.Filter):
        return given
    if not isinstance(given, Mapping):
        raise BadInput(
            f"`filter` is of type {type(given).__name__}; give a mapping of payload keys to values, or a "
            "qdrant_client.models.Filter.",
            param="filter",
        )
    return models.Filter(must=[_condition(models, key, value) for key, value in given.items()])


def named(points: Collection[int | str], documents: Collection[str]) -> Any:
    """The filter of these points and of every chunk of these documents."""
    models = qdrant_models()
    return models.Filter(should=[models.HasIdCondition(has_id=list(points)), _of_documents(models, documents)])


def documents_named(documents: Collection[str]) -> Any:
    """The filter of every chunk of these documents."""
    models = qdrant_models()
    return models.Filter(must=[_of_documents(models, documents)])


def fused(dense: Sequence[float], sparse: SparseVector, where: Any, limit: int) -> dict[str, Any]:
    """Arguments of `query_points` for both vectors' nearest, fused by their reciprocal ranks."""
    models = qdrant_models()
    return {
        "prefetch": [
            models.Prefetch(query=list(dense), filter=where, limit=limit),
            models.Prefetch(query=_sparse(models, sparse), using=SPARSE, filter=where, limit=limit),
        ],
        "query": models.FusionQuery(fusion=models.Fusion.RRF),
    }


def dense_size(name: str, info: Any) -> int:
    """How many numbers the unnamed dense vector of a collection has, as its CollectionInfo says.

    Raises SpaceMismatch where it has none: its vectors have names, or each point has several.
    """
    vectors = info.config.params.vectors
    size = getattr(vectors, "size", None)
    if size is None and isinstance(vectors, Mapping) and set(vectors) == {DENSE}:
        size = getattr(vectors[DENSE], "size", None)
    if not isinstance(size, int):
        names = ", ".join(sorted(vectors)) if isinstance(vectors, Mapping) and vectors else "none"
        raise SpaceMismatch(
            f"The collection {name} has no vector without a name (it has: {names}), and zooserve reads no other. Embed "
            "its texts anew under another name."
        )
    return size


def has_sparse(info: Any) -> bool:
    """Whether the collection has a sparse vector of ours."""
    return SPARSE in (info.config.params.sparse_vectors or {})


def _of_documents(models: Any, documents: Collection[str]) -> Any:
    return models.FieldCondition(key="document", match=models.MatchAny(any=document_names(documents)))


def _condition(models: Any, key: Any, value: Any) -> Any:
    if isinstance(key, str) and isinstance(value, list | tuple | set | frozenset) and _are_matched(value):
        return models.FieldCondition(key=key, match=models.MatchAny(any=list(value)))
    if not isinstance(key, str) or not _is_matched(value):
        raise BadInput(
            f"`filter` asks for {key!r}: {value!r}; values are texts, integers and booleans, or lists of texts, or "
            "of integers. For ranges and the like give a qdrant_client.models.Filter.",
            param="filter",
        )
    return models.FieldCondition(key=key, match=models.MatchValue(value=value))


def _are_matched(values: Collection[Any]) -> bool:
    return all(isinstance(one, str) for one in values) or all(isinstance(one, int) for one in values)


def _is_matched(value: Any) -> bool:
    return isinstance(value, str | int)


def _sparse(models: Any, vector: SparseVector) -> Any:
    return models.SparseVector(indices=list(vector.indices), values=list(vector.values))


def ids_of(records: Iterable[Any]) -> list[int | str]:
    """The ids of Records."""
    return [record.id for record in records]
