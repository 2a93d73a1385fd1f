"""Qdrant as a job uses it: a folder of this machine, or a server. Failures are errors of zooserve.errors."""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from zooserve.errors import NoSuchCollection, StoreRefused, StoreUnavailable
from zooserve.sdk.index import DENSE, SPARSE, Index, Place, find
from zooserve.sdk.store_faults import folder_in_use, translated

__all__ = ["JOB_KEY", "Address", "Layout", "Store"]

JOB_KEY = "zooserve_reembed"
"""Under which the new collection's metadata has the job's id, and what to roll back to."""

_TIMEOUT_S = 60
_KEY_STATUS = (401, 403)
_TRIES = 6
_FIRST_PAUSE_S = 0.5

Result = TypeVar("Result")


@dataclass(frozen=True)
class Address:
    """Where the store is: a folder or a server, never both."""

    folder: str | None = None
    url: str | None = None
    api_key: str | None = field(default=None, repr=False)

    @property
    def shown(self) -> str:
        """For people; never the key."""
        return self.folder or self.url or ""


@dataclass(frozen=True)
class Layout:
    """What vectors the points of a collection have. Names as in Qdrant, the unnamed one is ""."""

    dense: Mapping[str, Any]
    """VectorParams by name."""
    sparse: Mapping[str, Any]
    """SparseVectorParams by name."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of `create_collection`, taken from the source."""
    indexes: Mapping[str, Any] = field(default_factory=dict)
    """Payload indexes by field."""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, info: Any) -> "Layout":
        """Of a CollectionInfo."""
        params = info.config.params
        vectors = params.vectors or {}
        dense = dict(vectors) if isinstance(vectors, Mapping) else {DENSE: vectors}
        return cls(
            dense, dict(params.sparse_vectors or {}), _extra(info), _indexes(info), dict(info.config.metadata or {})
        )


class Store:
    """One Qdrant client."""

    def __init__(self, client: Any, address: Address) -> None:
        self._client = client
        self.address = address

    @classmethod
    @contextmanager
    def opened(cls, address: Address, *, create: bool = False) -> Iterator["Store"]:
        """For the block. Raises StoreUnavailable, StoreRefused, and NoSuchCollection for a folder that is none."""
        with warnings.catch_warnings():
            # The local mode warns from 20,000 points on, and of payload indexes; docs/reembed.md says both.
            warnings.filterwarnings("ignore", category=UserWarning)
            client = _connected(address, create=create)
            try:
                yield cls(client, address)
            finally:
                client.close()

    @property
    def is_local(self) -> bool:
        """Whether this process alone can read and write it."""
        return self.address.folder is not None

    def place(self, name: str) -> Place | None:
        """Where the name leads. Raises NoSuchCollection where its alias points at nothing."""
        return find(name, self.collections(), self.aliases())

    def collections(self) -> set[str]:
        """Their names; aliases are none."""
        return {held.name for held in self._patiently(lambda: self._client.get_collections()).collections}

    def aliases(self) -> dict[str, str]:
        """Where each leads."""
        held = self._patiently(lambda: self._client.get_aliases()).aliases
        return {each.alias_name: each.collection_name for each in held}

    def info(self, collection: str) -> Any:
        """Its CollectionInfo."""
        return self._patiently(lambda: self._client.get_collection(collection))

    def count(self, collection: str) -> int:
        """How many points it has, exactly."""
        return int(self._patiently(lambda: self._client.count(collection, exact=True)).count)

    def scroll(
        self, collection: str, offset: Any, limit: int, *, vectors: Sequence[str] = (), payload: bool = True
    ) -> tuple[list[Any], Any]:
        """Records in the order of their ids from `offset` on, and where to go on; None at the end."""
        records, following = self._patiently(
            lambda: self._client.scroll(
                collection, offset=offset, limit=limit, with_payload=payload, with_vectors=list(vectors) or False
            )
        )
        return list(records), following

    def sample(self, collection: str, limit: int, vector: str) -> list[Any]:
        """Points drawn by chance, with payload and the vector of this name."""
        from qdrant_client import models

        drawn = models.SampleQuery(sample=models.Sample.RANDOM)
        with_vectors = [vector] if vector else True
        return list(
            self._patiently(
                lambda: self._client.query_points(
                    collection, query=drawn, limit=limit, with_payload=True, with_vectors=with_vectors
                )
            ).points
        )

    def nearest(self, collection: str, query: Any, limit: int, vector: str) -> list[Any]:
        """ScoredPoints nearest to a vector, or to a point by its id; without payload."""
        return list(
            self._patiently(
                lambda: self._client.query_points(
                    collection, query=query, using=vector or None, limit=limit, with_payload=False
                )
            ).points
        )

    def create(self, collection: str, layout: Layout) -> None:
        """An empty collection, its payload not indexed yet."""
        metadata = dict(layout.metadata)
        vectors: Any = layout.dense[DENSE] if set(layout.dense) == {DENSE} else dict(layout.dense)
        with translated(self.address.shown):
            self._client.create_collection(
                collection,
                vectors_config=vectors,
                sparse_vectors_config=dict(layout.sparse) or None,
                metadata=metadata,
                **layout.extra,
            )

    def index_payload(self, collection: str, indexes: Mapping[str, Any]) -> None:
        """Have these payload fields indexed; those that are already stay as they are."""
        for name, schema in indexes.items():
            self._patiently(
                partial(self._client.create_payload_index, collection, name, field_schema=schema, wait=True)
            )

    def delete(self, collection: str) -> None:
        """Remove it and what is in it."""
        with translated(self.address.shown):
            self._client.delete_collection(collection)

    def upsert(self, collection: str, points: Sequence[Any]) -> dict[int, str]:
        """PointStructs, stored when this returns; by their place those that Qdrant refuses, and why."""
        if not points:
            return {}
        try:
            self._patiently(lambda: self._client.upsert(collection, list(points), wait=True))
        except StoreRefused as exc:
            if len(points) == 1:
                return {0: str(exc)}
            half = len(points) // 2
            later = self.upsert(collection, points[half:])
            return self.upsert(collection, points[:half]) | {half + place: why for place, why in later.items()}
        return {}

    def remove(self, collection: str, points: Sequence[int | str]) -> None:
        """Delete points by their ids."""
        if points:
            self._patiently(lambda: self._client.delete(collection, list(points), wait=True))

    def switch(self, alias: str, collection: str) -> None:
        """Make the alias lead to the collection, in one step, whatever it led to before."""
        from qdrant_client import models

        steps: list[Any] = []
        if alias in self.aliases():
            steps.append(models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=alias)))
        made = models.CreateAlias(collection_name=collection, alias_name=alias)
        steps.append(models.CreateAliasOperation(create_alias=made))
        with translated(self.address.shown):
            self._client.update_collection_aliases(steps)

    def _patiently(self, call: Callable[[], Result]) -> Result:
        """What can be repeated without harm, tried again for half a minute while a server is away."""
        for failures in range(_TRIES):
            try:
                with translated(self.address.shown):
                    return call()
            except StoreUnavailable:
                if self.is_local or failures == _TRIES - 1:
                    raise
                time.sleep(_FIRST_PAUSE_S * 2**failures)
        raise AssertionError("unreachable")


def _connected(address: Address, *, create: bool) -> Any:
    from qdrant_client import QdrantClient

    if address.folder is None:
        with _key_told(address), translated(address.shown):
            client = QdrantClient(
                url=address.url, api_key=address.api_key, timeout=_TIMEOUT_S, check_compatibility=False
            )
            client.get_collections()  # a server that is down or refuses the key is told at once
            return client
    if not create and not (Path(address.folder) / "meta.json").is_file():
        raise NoSuchCollection(f"{address.folder} is no Qdrant folder, so there is no collection to read.")
    try:
        Path(address.folder).mkdir(parents=True, exist_ok=True)
        return QdrantClient(path=address.folder)
    except RuntimeError as exc:
        raise folder_in_use(address.folder) from exc
    except (OSError, ValueError, KeyError) as exc:
        raise StoreRefused(f"The Qdrant folder {address.folder} cannot be opened: {exc}") from exc


@contextmanager
def _key_told(address: Address) -> Iterator[None]:
    """For the block, a refused key is told with where this command takes it from."""
    try:
        yield
    except StoreRefused as exc:
        if getattr(exc.__cause__, "status_code", None) not in _KEY_STATUS:
            raise
        given = "the key" if address.api_key else "to answer without a key"
        raise StoreRefused(
            f"Qdrant at {address.shown} refuses {given}: set the right one in QDRANT_API_KEY, or in the variable that "
            "--qdrant-key-variable names."
        ) from exc


def _extra(info: Any) -> dict[str, Any]:
    """What a server is told of how to keep the points; the local mode passes it by."""
    from qdrant_client import models

    params, config = info.config.params, info.config
    kept = {
        "on_disk_payload": params.on_disk_payload,
        "shard_number": params.shard_number,
        "replication_factor": params.replication_factor,
        "write_consistency_factor": params.write_consistency_factor,
        "quantization_config": config.quantization_config,
        "hnsw_config": _diff(config.hnsw_config, models.HnswConfigDiff),
    }
    return {name: value for name, value in kept.items() if value is not None}


def _diff(config: Any, kind: Any) -> Any:
    """A configuration as the arguments that set it."""
    if config is None:
        return None
    said = config.model_dump(exclude_none=True)
    return kind(**{name: value for name, value in said.items() if name in kind.model_fields})


def _indexes(info: Any) -> dict[str, Any]:
    return {name: held.params or held.data_type for name, held in (info.payload_schema or {}).items()}


def sparse_params() -> Any:
    """Of a sparse vector that nothing else is known of."""
    from qdrant_client import models

    return models.SparseVectorParams()


def dense_params(dimensions: int) -> Any:
    """Of the dense vector of a collection that begins with this job."""
    from qdrant_client import models

    return models.VectorParams(size=dimensions, distance=models.Distance.COSINE)


def new_layout(index: Index, metadata: Mapping[str, Any]) -> Layout:
    """As the SDK creates its collections: the unnamed dense vector, and the sparse one if there is one."""
    sparse = {} if index.sparse is None else {SPARSE: sparse_params()}
    indexes = {"document": "keyword"}
    return Layout({DENSE: dense_params(index.dimensions)}, sparse, {}, indexes, metadata)
