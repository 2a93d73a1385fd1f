"""One time limit over many waits."""

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from zooserve.errors import DeadlineExceeded
from zooserve_router.context import Deadline
from zooserve_router.waits import Waits


@contextmanager
def waits_of(seconds: float) -> Iterator[Waits]:
    with closing(Waits(Deadline.after(seconds), lambda: DeadlineExceeded("late"))) as waits:
        yield waits


async def test_a_wait_within_the_limit_returns_what_was_waited_for() -> None:
    with waits_of(60) as waits:
        for number in range(3):
            with waits:
                await asyncio.sleep(0)
                got = number
    assert got == 2
    assert asyncio.current_task().cancelling() == 0


async def test_the_wait_at_the_deadline_raises_and_every_later_one_too() -> None:
    with waits_of(0.01) as waits:
        with pytest.raises(DeadlineExceeded, match="late"), waits:
            await asyncio.Event().wait()
        assert waits.ended
        with pytest.raises(DeadlineExceeded), waits:
            pytest.fail("a refused wait began")
    assert asyncio.current_task().cancelling() == 0


async def test_an_end_between_two_waits_cancels_nothing() -> None:
    with waits_of(60) as waits:
        with waits:
            pass
        waits.end()
        with pytest.raises(DeadlineExceeded), waits:
            pytest.fail("a refused wait began")
    assert asyncio.current_task().cancelling() == 0


async def test_waits_can_be_ended_before_their_deadline() -> None:
    with waits_of(60) as waits:
        asyncio.get_running_loop().call_soon(waits.end)
        with pytest.raises(DeadlineExceeded), waits:
            await asyncio.Event().wait()


async def test_a_cancellation_by_somebody_else_stays_one() -> None:
    async def wait() -> None:
        with waits_of(60) as waits, waits:
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_beside_the_deadline_is_not_swallowed() -> None:
    began = asyncio.Event()

    async def wait(waits: Waits) -> None:
        with waits:
            began.set()
            await asyncio.Event().wait()

    with waits_of(60) as waits:
        task = asyncio.create_task(wait(waits))
        await began.wait()
        waits.end()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("first", ["inner", "outer"])
async def test_two_limits_at_once_do_not_interrupt_what_the_first_closes(first: str) -> None:
    with waits_of(60) as outer, waits_of(60) as inner:
        closing_began, may_close = asyncio.Event(), asyncio.Event()
        steps: list[str] = []

        async def wait() -> None:
            with outer, inner:
                try:
                    await asyncio.Event().wait()
                finally:
                    closing_began.set()
                    await may_close.wait()
                    steps.append("closed")

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        for limit in (inner, outer) if first == "inner" else (outer, inner):
            limit.end()
            await closing_began.wait()
        may_close.set()
        with pytest.raises(DeadlineExceeded):
            await task
    assert steps == ["closed"]


async def test_a_limit_that_held_back_ends_the_wait_that_outlives_the_others_cancellation() -> None:
    with waits_of(60) as waits:

        async def wait() -> None:
            with waits:
                with pytest.raises(asyncio.CancelledError):
                    await asyncio.Event().wait()
                asyncio.current_task().uncancel()
                await asyncio.Event().wait()

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        waits.end()
        with pytest.raises(DeadlineExceeded):
            await task


async def test_an_error_of_what_is_waited_for_comes_through() -> None:
    with waits_of(60) as waits, pytest.raises(ValueError, match="own"), waits:
        raise ValueError("its own")


async def test_one_limit_serves_several_tasks_in_turn() -> None:
    with waits_of(0.01) as waits:

        async def wait() -> None:
            with waits:
                await asyncio.Event().wait()

        with pytest.raises(DeadlineExceeded):
            await asyncio.create_task(wait())
    assert asyncio.current_task().cancelling() == 0


async def test_only_a_wait_that_is_under_way_has_lasted() -> None:
    with waits_of(60) as waits:
        assert waits.waiting_s == 0
        with waits:
            await asyncio.sleep(0)
            assert waits.waiting_s > 0
        assert waits.waiting_s == 0
