"""The client of the platform: `Zoo` for ordinary code and notebooks, `AsyncZoo` for asyncio.

A call passes: aio.client -> aio.http -> httpx. What awaits lies in `aio` and is written once; `blocking` is made from
it. Beside them lies what does not: checks (inputs, bodies), batches, budget, retries, faults, answers, results.

Each name is loaded when it is first asked for: who uses one client does not wait for the other.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zooserve.sdk.aio.chat import AsyncTextStream
    from zooserve.sdk.aio.client import AsyncZoo
    from zooserve.sdk.aio.collection import AsyncCollection
    from zooserve.sdk.blocking.chat import TextStream
    from zooserve.sdk.blocking.client import Zoo
    from zooserve.sdk.blocking.collection import Collection
    from zooserve.sdk.chat_fields import ChatFields, CompletionFields
    from zooserve.sdk.chat_results import ChatAnswer, Choice, Completion, TokenLogprob, ToolCall, Usage
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
    "AsyncTextStream",
    "AsyncZoo",
    "ChatAnswer",
    "ChatFields",
    "Choice",
    "Chunk",
    "Classification",
    "Classified",
    "Collection",
    "Completion",
    "CompletionFields",
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
    "TextStream",
    "TokenLogprob",
    "ToolCall",
    "Upserted",
    "Usage",
    "Zoo",
    "split",
]

_HOMES = {
    "aio.chat": ("AsyncTextStream",),
    "aio.client": ("AsyncZoo",),
    "aio.collection": ("AsyncCollection",),
    "blocking.chat": ("TextStream",),
    "blocking.client": ("Zoo",),
    "blocking.collection": ("Collection",),
    "chat_fields": ("ChatFields", "CompletionFields"),
    "chat_results": ("ChatAnswer", "Choice", "Completion", "TokenLogprob", "ToolCall", "Usage"),
    "chunks": ("Chunk", "Document"),
    "collection_results": ("Described", "Hit", "Upserted"),
    "index": ("Index",),
    "results": (
        "Classification",
        "Classified",
        "Embeddings",
        "ModelCard",
        "QueryReading",
        "RankedDocument",
        "Reranked",
        "SparseEmbeddings",
        "SparseVector",
    ),
    "splitting": ("split",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
