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


async def merged(streams: Sequence[AsyncGenerator[T, None]], at_once: int | None = None) -> AsyncGenerator[T, None]:
    """All items of all streams, of which `at_once` run at a time. The first error ends it; closing it closes them."""
    if len(streams) == 1:
        async with aclosing(streams[0]) as only:
            async for item in only:
                yield item
        return
    # One slot each: a slow reader slows the streams down instead of filling memory.
    items: asyncio.Queue[T | _End] = asyncio.Queue(maxsize=len(streams))
    gate = asyncio.Semaphore(at_once or len(streams))
    pumps = [asyncio.create_task(_pump(stream, items, gate)) for stream in streams]
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


async def _pump(stream: AsyncGenerator[T, None], items: "asyncio.Queue[T | _End]", gate: asyncio.Semaphore) -> None:
    error: Exception | None = None
    async with aclosing(stream), gate:
        try:
            async for item in stream:
                await items.put(item)
        except Exception as exc:  # carried to the reader, who raises it
            error = exc
    await items.put(_End(error))
