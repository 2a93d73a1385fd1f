"""What a collection is made of: its vectors, its configuration, its payload indexes and its metadata."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from zooserve.sdk.index import DENSE, SPARSE, Index

__all__ = ["JOB_KEY", "Layout", "new_layout", "sparse_params"]

JOB_KEY = "zooserve_reembed"
"""Under which the new collection's metadata has the job's id, and what to roll back to."""


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
