"""Several leaves behind one model: who is asked, who is left out and comes back, and that counts never drift."""

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field

import pytest

from zooserve.errors import BackendFailed, BackendUnavailable, Overloaded, ServingError, Unsupported
from zooserve_router.backends.leaves import Leaves, by_affinity
from zooserve_router.chat.generation import Conversation, Generation, Piece, Sampling, Work

WORK = Generation("Hi", Sampling(max_tokens=10))
NOTHING_IN_FLIGHT = {"a": 0, "b": 0}


@dataclass
class Clock:
    """Time that the test moves."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class FakeLeaf:
    """Says `script`, errors included; with `hold` it waits for it before each piece after the first."""

    script: list[Piece | ServingError] = field(default_factory=lambda: [Piece("Hi"), Piece("", "stop")])
    hold: asyncio.Event | None = None
    silent: bool = False
    asked: int = 0
    timeouts_s: list[float] = field(default_factory=list)

    async def generate(self, work: Work, timeout_s: float) -> AsyncGenerator[Piece, None]:
        self.asked += 1
        self.timeouts_s.append(timeout_s)
        if self.silent:
            await asyncio.Event().wait()
        for index, item in enumerate(self.script):
            if index and self.hold is not None:
                await self.hold.wait()
            if isinstance(item, ServingError):
                raise item
            yield item


def first_named(generation: Generation, loads: Mapping[str, int], tokens: int) -> str:
    """Prefers the leaf whose name comes first, so that a test knows who is asked."""
    return min(loads)


@dataclass
class Pair:
    """Leaves `a` and `b`; `a` is preferred."""

    a: FakeLeaf
    b: FakeLeaf
    clock: Clock
    leaves: Leaves

    async def texts(self, timeout_s: float = 5.0) -> list[str]:
        return [piece.text async for piece in self.leaves.generate(WORK, timeout_s)]


@pytest.fixture
def pair() -> Pair:
    a, b, clock = FakeLeaf(), FakeLeaf(), Clock()
    return Pair(a, b, clock, Leaves({"a": a, "b": b}, first_named, clock, random.Random(0)))


DOWN = BackendUnavailable("cannot be reached")


async def test_the_chosen_leaf_answers_alone(pair: Pair) -> None:
    assert await pair.texts() == ["Hi", ""]
    assert (pair.a.asked, pair.b.asked) == (1, 0)
    assert pair.leaves.in_flight() == NOTHING_IN_FLIGHT


@pytest.mark.parametrize("fault", [DOWN, Overloaded("full")], ids=["down", "full"])
async def test_what_a_leaf_could_not_begin_the_next_one_does(pair: Pair, fault: ServingError) -> None:
    pair.a.script = [fault]
    assert await pair.texts() == ["Hi", ""]
    assert (pair.a.asked, pair.b.asked) == (1, 1)
    assert pair.leaves.in_flight() == NOTHING_IN_FLIGHT


async def test_the_second_leaf_gets_what_is_left_of_the_time(pair: Pair) -> None:
    slow = pair.a.generate

    async def generate(work: Work, timeout_s: float) -> AsyncGenerator[Piece, None]:
        pair.clock.now += 3
        async for piece in slow(work, timeout_s):
            yield piece

    pair.a.generate = generate
    pair.a.script = [DOWN]
    await pair.texts(timeout_s=5.0)
    assert pair.b.timeouts_s == [2.0]


async def test_a_leaf_that_is_down_is_left_out_and_tried_again_after_its_pause(pair: Pair) -> None:
    pair.a.script = [DOWN]
    await pair.texts()
    await pair.texts()
    assert (pair.a.asked, pair.b.asked) == (1, 2)
    assert pair.leaves.left_out() == {"a"}

    pair.clock.now += 1
    pair.a.script = [Piece("back", "stop")]
    assert await pair.texts() == ["back"]
    assert pair.leaves.left_out() == frozenset()


async def test_a_leaf_that_stays_down_is_left_out_for_longer_each_time(pair: Pair) -> None:
    pair.a.script = [DOWN]
    waited = []
    for _ in range(4):
        asked, start = pair.a.asked, pair.clock.now
        while pair.a.asked == asked:
            await pair.texts()
            pair.clock.now += 0.1
        waited.append(pair.clock.now - start)
    assert waited == sorted(waited)
    assert waited[-1] > 1


async def test_a_leaf_that_dies_under_many_answers_is_left_out_once(pair: Pair) -> None:
    pair.a.script, pair.a.hold = [Piece("He"), DOWN], asyncio.Event()
    running = [asyncio.create_task(pair.texts()) for _ in range(20)]
    while pair.leaves.in_flight()["a"] < 20:  # noqa: ASYNC110 - they start in their own time
        await asyncio.sleep(0)
    pair.a.hold.set()
    await asyncio.gather(*running, return_exceptions=True)

    pair.clock.now += 1
    pair.a.script, pair.a.hold = [Piece("back", "stop")], None
    assert await pair.texts() == ["back"]


async def test_one_request_at_a_time_tries_a_leaf_that_was_down(pair: Pair) -> None:
    pair.a.script = [DOWN]
    await pair.texts()
    pair.clock.now += 1
    pair.a.silent = True
    trial = asyncio.create_task(pair.texts())
    await asyncio.sleep(0)

    assert await pair.texts() == ["Hi", ""]
    assert pair.a.asked == 2

    trial.cancel()
    await asyncio.gather(trial, return_exceptions=True)
    pair.a.silent, pair.a.script = False, [Piece("back", "stop")]
    assert await pair.texts() == ["back"]


async def test_with_every_leaf_down_the_model_is_unavailable(pair: Pair) -> None:
    pair.a.script = pair.b.script = [DOWN]
    with pytest.raises(BackendUnavailable, match="cannot be reached"):
        await pair.texts()
    with pytest.raises(BackendUnavailable, match="All 2 leaves"):
        await pair.texts()
    assert (pair.a.asked, pair.b.asked) == (1, 1)


async def test_full_beside_down_is_overloaded(pair: Pair) -> None:
    pair.a.script, pair.b.script = [Overloaded("full")], [DOWN]
    with pytest.raises(Overloaded):
        await pair.texts()


async def test_a_full_leaf_is_not_left_out(pair: Pair) -> None:
    pair.a.script = [Overloaded("full")]
    await pair.texts()
    assert pair.leaves.left_out() == frozenset()


async def test_an_answer_that_began_is_never_asked_of_another_leaf(pair: Pair) -> None:
    pair.a.script = [Piece("He"), DOWN]
    pieces = pair.leaves.generate(WORK, 5)
    assert await anext(pieces) == Piece("He")
    with pytest.raises(BackendFailed, match="send the request again"):
        await anext(pieces)
    assert pair.b.asked == 0
    assert pair.leaves.left_out() == {"a"}


async def test_an_answer_that_broke_off_with_no_other_leaf_up_makes_the_model_unavailable(pair: Pair) -> None:
    pair.b.script = [DOWN]
    pair.a.script = [Overloaded("full")]
    with pytest.raises(Overloaded):
        await pair.texts()
    pair.a.script = [Piece("He"), DOWN]
    with pytest.raises(BackendUnavailable):
        await pair.texts()


async def test_a_failure_of_the_request_itself_is_not_tried_elsewhere(pair: Pair) -> None:
    pair.a.script = [BackendFailed("bad sampling")]
    with pytest.raises(BackendFailed, match="bad sampling"):
        await pair.texts()
    assert pair.b.asked == 0


async def test_a_caller_that_leaves_gives_back_what_it_held(pair: Pair) -> None:
    pair.a.hold = asyncio.Event()
    async with aclosing(pair.leaves.generate(WORK, 5)) as pieces:
        await anext(pieces)
        assert pair.leaves.in_flight() == {"a": 1, "b": 0}
    assert pair.leaves.in_flight() == NOTHING_IN_FLIGHT
    assert pair.leaves.left_out() == frozenset()


async def test_counts_come_to_rest_whatever_happens(pair: Pair) -> None:
    chance = random.Random(3)
    leaves = Leaves({"a": pair.a, "b": pair.b}, by_affinity(0), pair.clock, random.Random(0))
    pair.a.hold = pair.b.hold = asyncio.Event()

    async def one(number: int) -> None:
        async for _ in leaves.generate(Generation(f"prompt {number}", Sampling(max_tokens=10)), 5):
            pass

    running = [asyncio.create_task(one(number)) for number in range(300)]
    for _ in range(3):
        await asyncio.sleep(0)
    assert sum(leaves.in_flight().values()) == 300
    for task in chance.sample(running, 150):
        task.cancel()
    pair.a.script = [Piece("Hi"), DOWN]
    pair.a.hold.set()
    await asyncio.gather(*running, return_exceptions=True)

    assert leaves.in_flight() == NOTHING_IN_FLIGHT
    assert {leaf.tokens for leaf in leaves._leaves.values()} == {0}


async def test_a_leaf_that_leaves_three_requests_without_an_answer_is_left_out(pair: Pair) -> None:
    pair.a.silent = True
    for _ in range(3):
        hung = asyncio.create_task(pair.texts(timeout_s=5.0))
        await asyncio.sleep(0)
        pair.clock.now += 5
        hung.cancel()
        await asyncio.gather(hung, return_exceptions=True)
    assert pair.leaves.left_out() == {"a"}
    assert await pair.texts() == ["Hi", ""]


@pytest.mark.parametrize(("timeout_s", "spent_s"), [(5.0, 1.0), (0.5, 0.5)], ids=["hung up", "little time"])
async def test_callers_that_leave_early_say_nothing_of_the_leaf(pair: Pair, timeout_s: float, spent_s: float) -> None:
    pair.a.silent = True
    for _ in range(5):
        hung = asyncio.create_task(pair.texts(timeout_s))
        await asyncio.sleep(0)
        pair.clock.now += spent_s
        hung.cancel()
        await asyncio.gather(hung, return_exceptions=True)
    assert pair.leaves.left_out() == frozenset()


async def test_load_moves_work_to_the_other_leaf() -> None:
    a, b = FakeLeaf(hold=asyncio.Event()), FakeLeaf(hold=asyncio.Event())
    leaves = Leaves({"a": a, "b": b}, by_affinity(0), Clock(), random.Random(0))
    async with aclosing(leaves.generate(WORK, 5)) as one, aclosing(leaves.generate(WORK, 5)) as other:
        await anext(one)
        await anext(other)
        assert leaves.in_flight() == {"a": 1, "b": 1}


async def test_messages_are_refused(pair: Pair) -> None:
    with pytest.raises(Unsupported):
        await anext(pair.leaves.generate(Conversation([]), 5))
