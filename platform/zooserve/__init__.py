"""zooserve: a zoo of models behind one HTTP API.

    from zooserve import Zoo, AsyncZoo

This package is the kernel: the client, errors, the catalogue, settings, the Triton client and the life of the servers.
Nothing here imports a layer above it. Importing it loads neither Ray, nor ONNX Runtime, nor torch; the client is loaded
when it is first asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zooserve.sdk import AsyncZoo, Chunk, Document, Zoo, split

__all__ = ["AsyncZoo", "Chunk", "Document", "Zoo", "__version__", "split"]

_OF_THE_SDK = frozenset({"AsyncZoo", "Chunk", "Document", "Zoo", "split"})

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _OF_THE_SDK:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from zooserve import sdk

    return getattr(sdk, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
