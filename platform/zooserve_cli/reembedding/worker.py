"""What runs in Ray's workers: a part's rows to vectors, and, where the store is a server, into the new collection."""

import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zooserve.errors import ZooserveError
from zooserve.sdk.blocking.client import Zoo
from zooserve.sdk.index import DENSE
from zooserve_cli.reembedding.embedding import Embedded, Embedder, Orders, Pace, sparse_as_json
from zooserve_cli.reembedding.rows import Row, read_rows
from zooserve_cli.reembedding.store import Address, Store

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Destination", "Made", "PartWorker", "points_of", "store_points"]


@dataclass(frozen=True)
class Destination:
    """Where points go, and under which names their vectors are made."""

    address: Address
    collection: str
    vector: str
    sparse: str = ""
    """Empty where no sparse vectors are made."""
    alone: bool = True
    """Whether the collection has no vector but the unnamed one: else Qdrant wants that under its name, too."""


@dataclass(frozen=True)
class Made:
    """What became of a part."""

    part: int
    stored: int
    """Points written by the worker; 0 where the driver has to."""
    refused: dict[int, tuple[str, str]]
    """By the row's place in the part."""
    fault: tuple[str, str] | None
    """An error that ends the job: its kind and message."""
    embedded: Embedded | None
    """What the driver has to write."""


class PartWorker:
    """Called by Ray Data with a table of one part: `part` and `rows`; returns one with `part`, `report`, `vectors`."""

    def __init__(self, orders: Orders, destination: Destination) -> None:
        self._orders = orders
        self._destination = destination

    def __call__(self, parts: "pyarrow.Table") -> "pyarrow.Table":
        """Every part of the table, one after the other."""
        import pyarrow

        made = [
            self._made(part, read_rows(rows))
            for part, rows in zip(parts["part"].to_pylist(), parts["rows"].to_pylist(), strict=True)
        ]
        return pyarrow.table(
            {
                "part": pyarrow.array([part for part, _, _ in made], pyarrow.int64()),
                "report": pyarrow.array([json.dumps(report) for _, report, _ in made], pyarrow.large_string()),
                "vectors": pyarrow.array([vectors for _, _, vectors in made], pyarrow.large_binary()),
            }
        )

    def _made(self, part: int, rows: list[Row]) -> tuple[int, dict[str, Any], bytes]:
        try:
            with Zoo(self._orders.base_url, api_key=self._orders.api_key) as zoo:
                embedder = Embedder(self._orders, zoo, Pace(self._orders.texts_per_s))
                embedded = embedder.embed([row.text for row in rows])
            if self._destination.address.folder is not None:
                report = {"places": embedded.places, "sparse": sparse_as_json(embedded.sparse)}
                return part, {**report, "refused": _listed(embedded.refused)}, embedded.vectors.tobytes()
            with Store.opened(self._destination.address) as store:
                stored, refused = store_points(store, self._destination, rows, embedded)
            return part, {"stored": stored, "refused": _listed(refused)}, b""
        except ZooserveError as exc:
            return part, {"fault": [type(exc).__name__, str(exc)], "refused": []}, b""


def read_made(part: int, report: str, vectors: bytes) -> Made:
    """What a worker's row says."""
    said = json.loads(report)
    refused = {place: (reason, detail) for place, reason, detail in said["refused"]}
    fault = tuple(said["fault"]) if "fault" in said else None
    embedded = None
    if "places" in said:
        from zooserve.sdk.results import SparseVector

        sparse = [SparseVector(array("I", indices), array("f", values)) for indices, values in said["sparse"]]
        embedded = Embedded(said["places"], array("f", vectors), sparse, refused)
    return Made(part, said.get("stored", 0), refused, fault, embedded)


def store_points(
    store: Store, destination: Destination, rows: Sequence[Row], embedded: Embedded
) -> tuple[int, dict[int, tuple[str, str]]]:
    """Write the points that got vectors: how many were stored, and by the row's place what was refused, by whom."""
    points = points_of(destination, rows, embedded)
    refused = {
        embedded.places[place]: ("refused by Qdrant", why)
        for place, why in store.upsert(destination.collection, points).items()
    }
    return len(points) - len(refused), {**embedded.refused, **refused}


def points_of(destination: Destination, rows: Sequence[Row], embedded: Embedded) -> list[Any]:
    """PointStructs with ids and payloads as they were, the vectors made anew, and those that are carried over."""
    from qdrant_client import models

    if not embedded.places:
        return []
    size = len(embedded.vectors) // len(embedded.places)
    points = []
    for number, place in enumerate(embedded.places):
        row = rows[place]
        vectors: dict[str, Any] = {name: _as_kept(models, vector) for name, vector in row.kept.items()}
        vectors[destination.vector] = embedded.vectors[number * size : (number + 1) * size].tolist()
        if destination.sparse:
            made = embedded.sparse[number]
            vectors[destination.sparse] = models.SparseVector(
                indices=made.indices.tolist(), values=made.values.tolist()
            )
        vector = vectors[DENSE] if destination.alone else vectors
        points.append(models.PointStruct(id=row.point, vector=vector, payload=row.payload))
    return points


def _as_kept(models: Any, vector: Any) -> Any:
    return models.SparseVector(**vector) if isinstance(vector, dict) else vector


def _listed(refused: dict[int, tuple[str, str]]) -> list[list[Any]]:
    return [[place, reason, detail] for place, (reason, detail) in refused.items()]
