"""Streams merged into one."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from zooserve_router.fanout import merged


class Source:
    def __init__(self, items: list[int], gate: asyncio.Event | None = None, error: Exception | None = None) -> None:
        self.items, self.gate, self.error, self.closed = items, gate, error, False

    async def read(self) -> AsyncGenerator[int, None]:
        try:
            for item in self.items:
                yield item
                if self.gate:
                    await self.gate.wait()
            if self.error:
                raise self.error
        finally:
            self.closed = True


@pytest.mark.parametrize("count", [1, 2, 5])
async def test_all_items_of_all_streams_come(count) -> None:
    sources = [Source([index, index + 10]) for index in range(count)]
    came = [item async for item in merged([source.read() for source in sources])]
    assert sorted(came) == sorted(item for source in sources for item in source.items)


async def test_a_waiting_stream_does_not_hold_the_others_up() -> None:
    stuck, quick = Source([1], asyncio.Event()), Source([2, 3, 4])
    both = merged([stuck.read(), quick.read()])
    assert sorted([await anext(both) for _ in range(4)]) == [1, 2, 3, 4]
    await both.aclose()
    assert stuck.closed
    assert quick.closed


async def test_the_first_error_ends_it_and_closes_the_rest() -> None:
    stuck, broken = Source([1], asyncio.Event()), Source([], error=ValueError("broken"))
    with pytest.raises(ValueError, match="broken"):
        [item async for item in merged([stuck.read(), broken.read()])]
    assert stuck.closed


async def test_cancelling_the_reader_closes_every_stream() -> None:
    sources = [Source([1], asyncio.Event()) for _ in range(2)]
    first = asyncio.Event()

    async def read() -> None:
        async for _ in merged([source.read() for source in sources]):
            first.set()

    reader = asyncio.create_task(read())
    await first.wait()
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert all(source.closed for source in sources)


async def test_no_more_streams_run_at_a_time_than_may() -> None:
    gate = asyncio.Event()
    begun: list[int] = []

    async def read(number: int) -> AsyncGenerator[int, None]:
        begun.append(number)
        yield number
        await gate.wait()

    streams = merged([read(number) for number in range(5)], at_once=2)
    assert sorted([await anext(streams), await anext(streams)]) == [0, 1]
    for _ in range(5):
        await asyncio.sleep(0)
    assert begun == [0, 1]
    gate.set()
    assert sorted([item async for item in streams]) == [2, 3, 4]
