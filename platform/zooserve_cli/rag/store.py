"""The demo's Qdrant collection: a folder of this machine, or a server.

Vectors of two embedding versions are two coordinate systems: the collection says which one it holds, and is searched
with no other.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from zooserve.errors import BackendFailed, NotRunning, SetupError, SpaceMismatch
from zooserve_cli.rag.chunks import Chunk

__all__ = ["COLLECTION", "Hit", "Store", "digest_of"]

COLLECTION = "zooserve-demo"


@dataclass(frozen=True)
class Hit:
    """A passage found, and how near it is."""

    chunk: Chunk
    score: float


def digest_of(chunks: Iterable[Chunk]) -> str:
    """What the collection was made of, so that another corpus is noticed."""
    whole = hashlib.sha256()
    for chunk in chunks:
        whole.update(chunk.embedded.encode())
    return whole.hexdigest()


class Store:
    """The collection behind one Qdrant client."""

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self.name = name
        """Where it is, for people."""

    @classmethod
    def local(cls, folder: Path) -> "Store":
        """In a folder of this machine. Raises SetupError when another process uses it."""
        from qdrant_client import QdrantClient

        folder.mkdir(parents=True, exist_ok=True)
        try:
            return cls(QdrantClient(path=str(folder)), str(folder))
        except RuntimeError as exc:
            raise SetupError(
                f"Another process uses the collection in {folder}. Wait for it, or name another folder with --store."
            ) from exc

    @classmethod
    def server(cls, url: str, api_key: str | None) -> "Store":
        """On a Qdrant server. Raises NotRunning when it does not answer, BackendFailed when it refuses."""
        from qdrant_client import QdrantClient

        store = cls(QdrantClient(url=url, api_key=api_key, timeout=30, check_compatibility=False), url)
        store._reach()
        return store

    def close(self) -> None:
        """Let go of the folder or the connections."""
        self._client.close()

    def holds(self, digest: str, count: int) -> bool:
        """Whether exactly this corpus is in the collection, whole."""
        return (
            bool(self._client.collection_exists(COLLECTION))
            and self._metadata().get("corpus") == digest
            and self._client.count(COLLECTION).count == count
        )

    def require_space(self, space: str) -> None:
        """Raise SpaceMismatch if the collection holds vectors of another embedding version than `space`."""
        if not self._client.collection_exists(COLLECTION):
            return
        held = self._metadata().get("space")
        if held != space:
            raise SpaceMismatch(
                f"The collection {COLLECTION} in {self.name} holds vectors of {held}; the platform now makes those of "
                f"{space}, which cannot be compared with them. Embed the corpus anew with --rebuild."
            )

    def begin(self, space: str, digest: str, dimensions: int) -> None:
        """An empty collection in the place of what was there."""
        from qdrant_client import models

        self._client.delete_collection(COLLECTION)
        self._client.create_collection(
            COLLECTION,
            vectors_config=models.VectorParams(size=dimensions, distance=models.Distance.COSINE),
            metadata={"space": space, "corpus": digest},
        )

    def add(self, first_id: int, chunks: Sequence[Chunk], vectors: Sequence[Sequence[float]]) -> None:
        """Passages with their vectors, under consecutive ids."""
        from qdrant_client import models

        points = [
            models.PointStruct(id=first_id + place, vector=list(vector), payload=asdict(chunk))
            for place, (chunk, vector) in enumerate(zip(chunks, vectors, strict=True))
        ]
        self._client.upsert(COLLECTION, points, wait=True)

    def search(self, vector: Sequence[float], limit: int) -> list[Hit]:
        """The nearest passages, best first."""
        found = self._client.query_points(COLLECTION, query=list(vector), limit=limit, with_payload=True)
        return [Hit(Chunk(**point.payload), float(point.score)) for point in found.points]

    def _metadata(self) -> dict[str, Any]:
        return dict(self._client.get_collection(COLLECTION).config.metadata or {})

    def _reach(self) -> None:
        from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

        try:
            self._client.get_collections()
        except UnexpectedResponse as exc:
            raise BackendFailed(f"Qdrant at {self.name} refused: {exc.status_code}. Is the API key right?") from exc
        except ResponseHandlingException as exc:
            raise NotRunning(f"No Qdrant answers at {self.name}: {exc}") from exc
