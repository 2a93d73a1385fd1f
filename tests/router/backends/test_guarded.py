"""One backend behind its circuit breaker."""

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import pytest

from zooserve.errors import BackendFailed, BackendUnavailable, DeadlineExceeded, Overloaded, ServingError
from zooserve_router.backends.guarded import Guarded
from zooserve_router.backends.leaves import Leaves
from zooserve_router.breaker import BREAKER_OPEN, Breaker
from zooserve_router.chat.generation import Generation, Piece, Work

DOWN = BackendUnavailable("cannot be reached")
ANSWER = [Piece("Hi"), Piece("", "stop")]
PROBE = Generation("Hello", is_probe=True)


@dataclass
class Clock:
    """Time that the test moves."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Backend:
    """Says its script; an Event in it is waited for."""

    script: list[Any] = field(default_factory=lambda: list(ANSWER))
    asked: int = 0

    async def generate(self, work: Work, timeout_s: float) -> AsyncGenerator[Piece, None]:
        self.asked += 1
        for item in self.script:
            if isinstance(item, asyncio.Event):
                await item.wait()
            elif isinstance(item, ServingError):
                raise item
            else:
                yield item


@dataclass
class Bench:
    """A backend, its guard, and the time."""

    clock: Clock = field(default_factory=Clock)
    backend: Backend = field(default_factory=Backend)
    guarded: Guarded = field(init=False)

    def __post_init__(self) -> None:
        self.guarded = Guarded(self.backend, Breaker("leaf", None, self.clock, random.Random(1)))

    @property
    def state(self) -> str:
        return self.guarded.breaker.state

    async def ask(self, work: Work | None = None, timeout_s: float = 30.0) -> ServingError | list[Piece]:
        try:
            return [piece async for piece in self.guarded.generate(work or Generation("Hi"), timeout_s)]
        except ServingError as error:
            return error

    async def ask_often(self, times: int) -> None:
        for _ in range(times):
            await self.ask()


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_five_failures_open_it_and_then_the_backend_is_left_alone(bench: Bench) -> None:
    bench.backend.script = [DOWN]
    await bench.ask_often(20)
    assert (bench.state, bench.backend.asked) == ("open", 5)
    refused = await bench.ask()
    assert isinstance(refused, BackendUnavailable)
    assert refused.code == BREAKER_OPEN


async def test_after_the_pause_one_answer_closes_it(bench: Bench) -> None:
    bench.backend.script = [DOWN]
    await bench.ask_often(5)
    bench.clock.now += 1
    bench.backend.script = list(ANSWER)
    assert await bench.ask() == ANSWER
    assert bench.state == "closed"


@pytest.mark.parametrize("fault", [Overloaded("full"), BackendFailed("bad sampling")], ids=["full", "failed"])
async def test_what_a_server_says_of_one_request_shows_that_it_is_there(bench: Bench, fault: ServingError) -> None:
    bench.backend.script = [fault]
    await bench.ask_often(50)
    assert (bench.state, bench.backend.asked) == ("closed", 50)


async def test_a_trial_that_is_told_of_a_full_queue_closes_it(bench: Bench) -> None:
    bench.backend.script = [DOWN]
    await bench.ask_often(5)
    bench.clock.now += 1
    bench.backend.script = [Overloaded("full")]
    await bench.ask()
    assert bench.state == "closed"


async def test_a_probe_goes_through_while_it_is_open_and_closes_it(bench: Bench) -> None:
    bench.backend.script = [DOWN]
    await bench.ask_often(5)
    bench.backend.script = list(ANSWER)
    assert isinstance(await bench.ask(), BackendUnavailable)
    assert await bench.ask(PROBE) == ANSWER
    assert await bench.ask() == ANSWER


async def test_a_short_deadline_says_nothing_about_the_backend(bench: Bench) -> None:
    bench.backend.script = [DeadlineExceeded("late")]
    for _ in range(50):
        await bench.ask(timeout_s=2.0)
        bench.clock.now += 2.0
    assert bench.state == "closed"


async def test_callers_that_leave_say_nothing_about_the_backend(bench: Bench) -> None:
    bench.backend.script = [asyncio.Event()]
    for _ in range(20):
        leaving = asyncio.create_task(bench.ask())
        await asyncio.sleep(0)
        bench.clock.now += 3
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
    assert bench.state == "closed"


async def test_a_trial_left_by_its_caller_makes_way_for_the_next(bench: Bench) -> None:
    bench.backend.script = [DOWN]
    await bench.ask_often(5)
    bench.clock.now += 1
    bench.backend.script = [asyncio.Event()]
    trial = asyncio.create_task(bench.ask())
    await asyncio.sleep(0)
    assert bench.state == "half_open"
    trial.cancel()
    await asyncio.gather(trial, return_exceptions=True)
    bench.backend.script = list(ANSWER)
    assert await bench.ask() == ANSWER
    assert bench.state == "closed"


async def test_a_trial_closes_it_with_its_first_piece_and_not_with_its_last(bench: Bench) -> None:
    bench.backend.script = [DOWN]
    await bench.ask_often(5)
    bench.clock.now += 1
    bench.backend.script = [Piece("Hi"), asyncio.Event()]
    async with aclosing(bench.guarded.generate(Generation("Hi"), 30)) as pieces:
        await anext(pieces)
        assert bench.state == "closed"


async def test_a_probe_asks_leaves_that_are_left_out_when_no_other_is_left() -> None:
    clock, a, b = Clock(), Backend([DOWN]), Backend([DOWN])
    leaves = Leaves({"a": a, "b": b}, lambda _, loads, __: min(loads), clock, random.Random(1))
    with pytest.raises(BackendUnavailable):
        await anext(leaves.generate(Generation("Hi"), 5))
    assert leaves.is_mistrusted
    with pytest.raises(BackendUnavailable, match="All 2 leaves") as refused:
        await anext(leaves.generate(Generation("Hi"), 5))
    assert refused.value.code == BREAKER_OPEN
    assert refused.value.retry_after_s is not None
    a.script = list(ANSWER)
    assert [piece async for piece in leaves.generate(PROBE, 5)] == ANSWER
    assert leaves.left_out() == {"b"}
