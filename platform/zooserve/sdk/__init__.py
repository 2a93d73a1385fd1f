"""The client of the platform: `Zoo` for ordinary code and notebooks, `AsyncZoo` for asyncio.

A call passes: aio.client -> aio.http -> httpx. What awaits lies in `aio` and is written once; `blocking` is made from
it. Beside them lies what does not: checks (inputs, bodies), batches, budget, retries, faults, answers, results.
"""

from zooserve.sdk.aio.client import AsyncZoo
from zooserve.sdk.aio.collection import AsyncCollection
from zooserve.sdk.blocking.client import Zoo
from zooserve.sdk.blocking.collection import Collection
from zooserve.sdk.chunks import Chunk, Document
from zooserve.sdk.collection_results import Described, Hit, Upserted
from zooserve.sdk.index import Index
from zooserve.sdk.results import (
    Classification,
    Classified,
    Embeddings,
    ModelCard,
    QueryReading,
    RankedDocument,
    Reranked,
    SparseEmbeddings,
    SparseVector,
)
from zooserve.sdk.splitting import split

__all__ = [
    "AsyncCollection",
    "AsyncZoo",
    "Chunk",
    "Classification",
    "Classified",
    "Collection",
    "Described",
    "Document",
    "Embeddings",
    "Hit",
    "Index",
    "ModelCard",
    "QueryReading",
    "RankedDocument",
    "Reranked",
    "SparseEmbeddings",
    "SparseVector",
    "Upserted",
    "Zoo",
    "split",
]
