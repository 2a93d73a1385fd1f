"""Waiting for a budget: whose turn it is, who leaves, and that nobody is forgotten."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zooserve.errors import Overloaded
from zooserve_router.admission import Budget
from zooserve_router.fair_queue import FairQueue


class Crowd:
    """Requests that wait for one queue, and the order in which they were admitted."""

    def __init__(self, queue: FairQueue) -> None:
        self.queue = queue
        self.admitted: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def ask(self, name: str, tokens: int, caller: str | None = None, requests: int = 1) -> asyncio.Task[None]:
        """A request that has been admitted or waits by now."""

        async def admitted() -> None:
            await self.queue.admit(tokens, requests, caller or name)
            self.admitted.append(name)

        task = self.tasks[name] = asyncio.create_task(admitted())
        await turns()
        return task

    async def give_back(self, tokens: int, requests: int = 1) -> None:
        self.queue.give_back(tokens, requests)
        await turns()


async def turns() -> None:
    """Let everybody run who can."""
    for _ in range(5):
        await asyncio.sleep(0)


@asynccontextmanager
async def crowd_of(
    limit: int | None = 100, most_waiting: int = 1000, requests: int | None = None
) -> AsyncIterator[Crowd]:
    crowd = Crowd(FairQueue(Budget("chat", limit, requests), most_waiting))
    try:
        yield crowd
    finally:
        for task in crowd.tasks.values():
            task.cancel()
        await asyncio.gather(*crowd.tasks.values(), return_exceptions=True)


async def test_what_fits_is_admitted_at_once_and_what_does_not_waits_until_there_is_room() -> None:
    async with crowd_of() as crowd:
        await crowd.ask("first", 80)
        await crowd.ask("second", 30)
        assert (crowd.admitted, crowd.queue.waiting) == (["first"], 1)
        await crowd.give_back(80)
        assert (crowd.admitted, crowd.queue.waiting) == (["first", "second"], 0)
        assert crowd.queue.budget.taken_tokens == 30


async def test_a_single_request_of_one_caller_does_not_wait_for_the_hundred_of_another() -> None:
    async with crowd_of() as crowd:
        await crowd.ask("running", 100)
        for number in range(100):
            await crowd.ask(f"many {number}", 20, "greedy")
        await crowd.ask("one", 20, "modest")
        await crowd.give_back(100)
        assert crowd.admitted.index("one") <= 2
        assert len(crowd.admitted) == 1 + 5


async def test_callers_get_the_same_room_whatever_the_size_of_their_requests() -> None:
    async with crowd_of(limit=640) as crowd:
        await crowd.ask("running", 640)
        for number in range(100):
            await crowd.ask(f"small {number}", 20, "small")
            await crowd.ask(f"large {number}", 160, "large")
        room = 640
        for _ in range(5):
            await crowd.give_back(room)
            room = crowd.queue.budget.taken_tokens
        given = {kind: sum(name.startswith(kind) for name in crowd.admitted) for kind in ("small", "large")}
        assert given["small"] * 20 == pytest.approx(given["large"] * 160, abs=320)


async def test_a_large_request_gets_its_turn_though_smaller_ones_keep_coming() -> None:
    async with crowd_of() as crowd:
        for number in range(10):
            await crowd.ask(f"small {number}", 10, "small")
        await crowd.ask("large", 100, "large")
        for number in range(10, 200):
            await crowd.ask(f"small {number}", 10, "small")
            await crowd.give_back(10)
            if "large" in crowd.admitted:
                break
        assert "large" in crowd.admitted
        assert crowd.queue.budget.taken_tokens == 100


async def test_a_request_larger_than_the_whole_budget_is_admitted_alone() -> None:
    async with crowd_of() as crowd:
        await crowd.ask("small", 10)
        await crowd.ask("huge", 500)
        assert crowd.admitted == ["small"]
        await crowd.give_back(10)
        assert crowd.admitted == ["small", "huge"]
        await crowd.ask("later", 10)
        assert crowd.admitted == ["small", "huge"]
        await crowd.give_back(500)
        assert crowd.admitted == ["small", "huge", "later"]


async def test_one_of_several_waiters_leaves_and_the_others_keep_their_turns() -> None:
    async with crowd_of() as crowd:
        await crowd.ask("running", 100)
        for name in ("a", "b", "c"):
            await crowd.ask(name, 40)
        crowd.tasks["b"].cancel()
        await turns()
        assert crowd.queue.waiting == 2
        await crowd.give_back(100)
        assert crowd.admitted == ["running", "a", "c"]
        assert crowd.queue.budget.taken_tokens == 80


async def test_who_stood_behind_a_large_request_is_admitted_when_that_one_leaves() -> None:
    async with crowd_of() as crowd:
        await crowd.ask("running", 60)
        await crowd.ask("large", 90)
        await crowd.ask("small", 40)
        assert crowd.admitted == ["running"]
        crowd.tasks["large"].cancel()
        await turns()
        assert crowd.admitted == ["running", "small"]


async def test_a_turn_that_comes_while_its_request_is_leaving_goes_to_the_next() -> None:
    async with crowd_of() as crowd:
        await crowd.ask("running", 100)
        leaving = await crowd.ask("leaving", 100)
        await crowd.ask("next", 100)
        crowd.queue.give_back(100)  # its turn has come, and it has not run yet
        leaving.cancel()
        await turns()
        assert crowd.admitted == ["running", "next"]
        assert crowd.queue.budget.taken_tokens == 100


async def test_a_full_queue_refuses_with_a_time_to_come_back() -> None:
    async with crowd_of(most_waiting=2) as crowd:
        await crowd.ask("running", 100)
        await crowd.ask("a", 10)
        await crowd.ask("b", 10)
        with pytest.raises(Overloaded, match="2 requests already wait") as refused:
            await crowd.queue.admit(10, 1, "c")
        assert refused.value.retry_after_s > 0
        assert crowd.queue.waiting == 2


async def test_without_a_bound_on_tokens_the_requests_are_counted() -> None:
    async with crowd_of(limit=None, requests=2) as crowd:
        for name in ("a", "b", "c"):
            await crowd.ask(name, 10_000)
        assert crowd.admitted == ["a", "b"]
        await crowd.give_back(10_000)
        assert crowd.admitted == ["a", "b", "c"]


async def test_who_is_leaving_when_there_is_room_takes_none_of_it() -> None:
    async with crowd_of() as crowd:
        await crowd.ask("running", 100)
        leaving = await crowd.ask("leaving", 60)
        await crowd.ask("next", 60)
        leaving.cancel()
        crowd.queue.give_back(100)  # in the same turn of the loop: it has not run since
        await turns()
        assert crowd.admitted == ["running", "next"]
        assert (crowd.queue.budget.taken_tokens, crowd.queue.waiting) == (60, 0)


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.sampled_from("xyz"), st.integers(1, 150)),
        st.tuples(st.just("leave"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("end"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("run"), st.just(0), st.just(0)),
    ),
    max_size=80,
)


@settings(max_examples=200, deadline=None)
@given(ACTIONS)
def test_whatever_happens_the_bound_holds_and_at_the_end_nothing_is_taken(actions) -> None:
    """Between two runs any number of things happen in one turn of the loop."""

    async def played() -> None:
        queue = FairQueue(Budget("chat", 100), 10)
        holding: dict[asyncio.Task[None], int] = {}
        asking: dict[asyncio.Task[None], int] = {}

        async def run() -> None:
            await turns()
            for task in [task for task in asking if task.done()]:
                tokens = asking.pop(task)
                if not task.cancelled() and task.exception() is None:
                    holding[task] = tokens
            assert sum(holding.values()) == queue.budget.taken_tokens
            assert queue.budget.taken_tokens <= 100 or len(holding) == 1
            assert queue.waiting == len(asking) <= 10
            assert holding or not asking, "who waits, waits for somebody"

        for action, who, tokens in actions:
            if action == "ask":
                asking[asyncio.create_task(queue.admit(tokens, 1, str(who)))] = tokens
            elif action == "leave" and asking:
                list(asking)[who % len(asking)].cancel()
            elif action == "end" and holding:
                queue.give_back(holding.pop(list(holding)[who % len(holding)]))
            elif action == "run":
                await run()
        await run()
        while holding:
            queue.give_back(holding.pop(next(iter(holding))))
            await run()
        assert (queue.waiting, queue.budget.taken_tokens) == (0, 0)

    asyncio.run(played())
