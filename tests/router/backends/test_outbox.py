"""The outbox: telling never holds anybody up, and what does not fit is dropped and counted."""

import asyncio
from collections.abc import Sequence

import pytest

from zooserve.processes.ports import reserved_ports
from zooserve_observability.spans import Span
from zooserve_observability.trace_log import TraceLog
from zooserve_observability.trace_receiver import TraceReceiver
from zooserve_router.backends.outbox import Outbox
from zooserve_router.backends.traces import TraceSource
from zooserve_router.backends.wire import ConnectionPool


class Log(TraceSource):
    """A trace log that takes what it is told once it may."""

    def __init__(self) -> None:
        self.told: list[Sequence[Span]] = []
        self.may = asyncio.Event()
        self.asked = asyncio.Event()

    async def tell(self, *spans: Span) -> None:
        self.asked.set()
        await self.may.wait()
        self.told.append(spans)
        self.asked.clear()


def spans(number: int) -> list[Span]:
    return [Span("t" * 32, f"{each:016x}", "", "chat", 0, 1) for each in range(number)]


@pytest.fixture
def log() -> Log:
    return Log()


async def test_what_is_put_is_told_in_bounded_exports(log) -> None:
    log.may.set()
    outbox = Outbox(log, pytest.fail, most=2000)
    async with outbox.telling():
        outbox.put(spans(1200))
        while sum(map(len, log.told)) < 1200:  # noqa: ASYNC110 - the log has no event for it
            await asyncio.sleep(0)
    assert [len(export) for export in log.told] == [512, 512, 176]


async def test_beyond_its_bound_the_last_are_dropped_and_counted_and_nobody_waits(log) -> None:
    dropped: list[int] = []
    outbox = Outbox(log, dropped.append, most=10)
    async with outbox.telling():
        outbox.put(spans(2))
        await log.asked.wait()
        outbox.put(spans(8))
        outbox.put(spans(5))
        outbox.put(spans(5))
        assert dropped == [3, 5]
        log.may.set()
    assert sum(map(len, log.told)) <= 12


async def test_what_is_left_at_the_end_is_told_once_more(log) -> None:
    log.may.set()
    outbox = Outbox(log, pytest.fail)
    async with outbox.telling():
        outbox.put(spans(3))
    assert [len(export) for export in log.told] == [3]


async def test_the_platforms_own_log_keeps_what_it_is_told_and_one_that_is_gone_is_no_failure() -> None:
    (port,) = reserved_ports(1)
    kept, pool = TraceLog(2**20), ConnectionPool("127.0.0.1", port)
    (span,) = spans(1)
    told = Span("ab" * 16, span.span_id, "", "chat", 1, 2, {"gen_ai.request.model": "chat"}, "too late")
    async with TraceReceiver(kept, "127.0.0.1", port).serving():
        outbox = Outbox(TraceSource(pool), pytest.fail)
        async with outbox.telling():
            outbox.put([told])
        assert kept.spans(told.trace_id) == [told]
        pool.close()
    async with outbox.telling():
        outbox.put([told])
