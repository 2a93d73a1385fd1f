"""The client of the platform: `Zoo` for ordinary code and notebooks, `AsyncZoo` for asyncio.

A call passes: aio.client -> aio.http -> httpx. What awaits lies in `aio` and is written once; `blocking` is made from
it. Beside them lies what does not: checks (inputs, bodies), batches, budget, retries, faults, answers, results.
"""

from zooserve.sdk.aio.client import AsyncZoo
from zooserve.sdk.blocking.client import Zoo
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

__all__ = [
    "AsyncZoo",
    "Classification",
    "Classified",
    "Embeddings",
    "ModelCard",
    "QueryReading",
    "RankedDocument",
    "Reranked",
    "SparseEmbeddings",
    "SparseVector",
    "Zoo",
]
