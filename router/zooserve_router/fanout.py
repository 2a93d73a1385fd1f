"""Several streams read as one, in the order in which their items come."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeVar

__all__ = ["merged"]

T = TypeVar("T")


@dataclass(frozen=True)
class _End:
    error: Exception | None = None


async def merged(streams: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
    """All items of all streams. The first error ends it; closing it closes every stream."""
    if len(streams) == 1:
        async with aclosing(streams[0]) as only:
            async for item in only:
                yield item
        return
    # One slot each: a slow reader slows the streams down instead of filling memory.
    items: asyncio.Queue[T | _End] = asyncio.Queue(maxsize=len(streams))
    pumps = [asyncio.create_task(_pump(stream, items)) for stream in streams]
    try:
        left = len(pumps)
        while left:
            came = await items.get()
            if not isinstance(came, _End):
                yield came
            elif came.error is not None:
                raise came.error
            else:
                left -= 1
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(stream: AsyncGenerator[T, None], items: "asyncio.Queue[T | _End]") -> None:
    error: Exception | None = None
    async with aclosing(stream):
        try:
            async for item in stream:
                await items.put(item)
        except Exception as exc:  # carried to the reader, who raises it
            error = exc
    await items.put(_End(error))
