"""How much of a Qdrant server's reply is read: what a page of points weighs is known only when it comes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

__all__ = ["ReplyBound", "ReplyTooLarge"]


class ReplyTooLarge(Exception):
    """A reply was let go in its middle."""


@dataclass
class ReplyBound:
    """The most bytes of a reply; None while there is no bound."""

    most: int | None = None

    def apply(self, response: httpx.Response) -> None:
        """A hook of httpx, called before the body is read."""
        if self.most is not None and isinstance(response.stream, httpx.SyncByteStream):
            response.stream = _Counted(response.stream, self.most)

    @property
    def client_arguments(self) -> dict[str, Any]:
        """For QdrantClient: the bound is of what is parsed, so nothing comes compressed."""
        return {"event_hooks": {"response": [self.apply]}, "headers": {"accept-encoding": "identity"}}


class _Counted(httpx.SyncByteStream):
    def __init__(self, stream: httpx.SyncByteStream, most: int) -> None:
        self._stream = stream
        self._most = most

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for piece in self._stream:
            size += len(piece)
            if size > self._most:
                raise ReplyTooLarge
            yield piece

    def close(self) -> None:
        self._stream.close()
