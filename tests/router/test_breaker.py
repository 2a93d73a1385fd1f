"""The circuit breaker by a clock that the test moves: every way from one state to the next, and random ones."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zooserve.errors import BackendUnavailable
from zooserve_router.breaker import BREAKER_OPEN, Breaker, Patience

PATIENCE = Patience(failures=3, window_s=60.0, first_pause_s=1.0, longest_pause_s=8.0, usual_s=10.0)
LONGEST_FIRST_PAUSE_S = 1.5
TRIAL_IS_WAITED_FOR_S = 10.0


@dataclass
class Clock:
    """Time that the test moves."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Told:
    """What the breaker told."""

    states: list[str] = field(default_factory=list)
    opened: int = 0

    def breaker(self, endpoint: str, state: str) -> None:
        if [state] != self.states[-1:]:
            self.states.append(state)

    def breaker_opened(self, endpoint: str) -> None:
        self.opened += 1


@dataclass
class Bench:
    """A breaker with what it goes by and what it tells."""

    clock: Clock = field(default_factory=Clock)
    told: Told = field(default_factory=Told)
    breaker: Breaker = field(init=False)

    def __post_init__(self) -> None:
        self.breaker = Breaker("zoo", PATIENCE, self.clock, random.Random(1), self.told)

    def fail(self, times: int = 1, **how: bool) -> None:
        for _ in range(times):
            with self.breaker.attempt(**how) as attempt:
                attempt.failed("refused")

    def answer(self, **how: bool) -> None:
        with self.breaker.attempt(**how) as attempt:
            attempt.answered()

    def wait_out_the_pause(self) -> None:
        self.clock.now += self.pause_s()

    def pause_s(self) -> float:
        refused_s = self.breaker.refusal().retry_after_s
        assert refused_s is not None
        return refused_s


@pytest.fixture
def bench() -> Bench:
    return Bench()


def is_refused(bench: Bench) -> bool:
    try:
        with bench.breaker.attempt():
            return False
    except BackendUnavailable:
        return True


def test_failures_in_a_row_open_it_and_one_less_does_not(bench: Bench) -> None:
    bench.fail(2)
    assert bench.breaker.state == "closed"
    bench.fail()
    assert bench.breaker.state == "open"
    assert (bench.told.states, bench.told.opened) == (["closed", "open"], 1)


def test_an_answer_between_begins_the_count_anew(bench: Bench) -> None:
    bench.fail(2)
    bench.answer()
    bench.fail(2)
    assert bench.breaker.state == "closed"


def test_failures_long_apart_are_not_in_a_row(bench: Bench) -> None:
    for _ in range(10):
        bench.fail()
        bench.clock.now += 31  # three lie in more than a minute
    assert bench.breaker.state == "closed"


def test_while_it_is_open_calls_are_refused_with_the_time_to_come_back(bench: Bench) -> None:
    bench.fail(3)
    with (
        pytest.raises(BackendUnavailable, match=r"zoo\) has failed and is left alone") as refused,
        bench.breaker.attempt(),
    ):
        pass
    assert refused.value.code == BREAKER_OPEN
    assert refused.value.retry_after_s is not None
    assert 0.5 <= refused.value.retry_after_s <= LONGEST_FIRST_PAUSE_S


def test_after_the_pause_an_answer_closes_it(bench: Bench) -> None:
    bench.fail(3)
    bench.wait_out_the_pause()
    with bench.breaker.attempt() as attempt:
        assert bench.breaker.state == "half_open"
        attempt.answered()
        assert bench.breaker.state == "closed"
    assert bench.told.states == ["closed", "open", "half_open", "closed"]
    assert bench.told.opened == 1


def test_a_trial_that_fails_opens_it_for_longer_each_time_up_to_a_bound(bench: Bench) -> None:
    bench.fail(3)
    pauses_s = [bench.pause_s()]
    for _ in range(8):
        bench.wait_out_the_pause()
        bench.fail()
        assert bench.breaker.state == "open"
        pauses_s.append(bench.pause_s())
    wanted_s = [1, 2, 4, 8, 8, 8, 8, 8, 8]
    assert all(0.5 * wanted <= pause <= 1.5 * wanted for pause, wanted in zip(pauses_s, wanted_s, strict=True))
    assert len(set(pauses_s)) == len(pauses_s), "they vary, so that replicas do not come back together"
    assert bench.told.opened == 9


def test_once_closed_it_takes_as_many_failures_again_and_the_pause_is_short_again(bench: Bench) -> None:
    bench.fail(3)
    for _ in range(4):
        bench.wait_out_the_pause()
        bench.fail()
    bench.wait_out_the_pause()
    bench.answer()
    bench.fail(2)
    assert bench.breaker.state == "closed"
    bench.fail()
    assert bench.pause_s() <= LONGEST_FIRST_PAUSE_S


def test_one_trial_at_a_time(bench: Bench) -> None:
    bench.fail(3)
    bench.wait_out_the_pause()
    with bench.breaker.attempt():
        assert is_refused(bench)


async def test_of_a_hundred_callers_at_once_one_is_the_trial(bench: Bench) -> None:
    bench.fail(3)
    bench.wait_out_the_pause()
    gate, tried, refused = asyncio.Event(), [], []

    async def call(number: int) -> None:
        try:
            with bench.breaker.attempt() as attempt:
                tried.append(number)
                await gate.wait()
                attempt.answered()
        except BackendUnavailable:
            refused.append(number)

    calls = [asyncio.create_task(call(number)) for number in range(100)]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*calls)
    assert (len(tried), len(refused)) == (1, 99)
    assert bench.breaker.state == "closed"


async def test_a_trial_whose_caller_leaves_lets_the_next_one_try(bench: Bench) -> None:
    bench.fail(3)
    bench.wait_out_the_pause()

    async def call() -> None:
        with bench.breaker.attempt():
            await asyncio.Event().wait()

    trial = asyncio.create_task(call())
    await asyncio.sleep(0)
    assert bench.breaker.state == "half_open"
    trial.cancel()
    await asyncio.gather(trial, return_exceptions=True)
    assert bench.breaker.state == "open"
    bench.answer()
    assert bench.breaker.state == "closed"


def test_a_trial_that_says_nothing_for_ever_is_not_waited_for_that_long(bench: Bench) -> None:
    bench.fail(3)
    bench.wait_out_the_pause()
    with bench.breaker.attempt() as hanging:
        bench.clock.now += TRIAL_IS_WAITED_FOR_S - 0.1
        assert is_refused(bench)
        bench.clock.now += 0.2
        bench.answer()
        assert bench.breaker.state == "closed"
        hanging.failed("late")
    assert bench.breaker.state == "closed"


def test_callers_that_leave_never_open_it(bench: Bench) -> None:
    for _ in range(100):
        with bench.breaker.attempt(timeout_s=30.0):
            bench.clock.now += 1.0
    assert bench.breaker.state == "closed"


@pytest.mark.parametrize(("allowed_s", "state"), [(0.2, "closed"), (9.0, "closed"), (10.0, "open"), (60.0, "open")])
def test_silence_counts_only_where_the_time_was_enough(bench: Bench, allowed_s: float, state: str) -> None:
    patience = Patience(failures=3, window_s=1000.0)
    breaker = Breaker("leaf", patience, bench.clock, random.Random(1))
    for _ in range(3):
        with breaker.attempt(timeout_s=allowed_s):
            bench.clock.now += allowed_s - 0.01  # whoever sets the deadline cancels a moment before
    assert breaker.state == state


def test_silence_is_no_failure_where_another_call_is_answered_meanwhile(bench: Bench) -> None:
    silent = [bench.breaker.attempt(timeout_s=10.0) for _ in range(10)]
    for call in silent:
        call.__enter__()
    bench.answer()
    bench.clock.now += 10
    for call in silent:
        call.__exit__(None, None, None)
    assert bench.breaker.state == "closed"
    for _ in range(3):
        with bench.breaker.attempt(timeout_s=10.0):
            bench.clock.now += 10
    assert bench.breaker.state == "open", "an answer before they began excuses nothing"


def test_many_calls_that_break_off_together_are_one_opening(bench: Bench) -> None:
    attempts = [bench.breaker.attempt() for _ in range(50)]
    entered = [each.__enter__() for each in attempts]
    for attempt in entered:
        attempt.failed("reset")
    assert bench.told.opened == 1
    assert bench.pause_s() <= LONGEST_FIRST_PAUSE_S


def test_what_began_before_it_opened_neither_closes_it_nor_opens_it_for_longer(bench: Bench) -> None:
    early, late = bench.breaker.attempt(), bench.breaker.attempt()
    answering, failing = early.__enter__(), late.__enter__()
    bench.fail(3)
    answering.answered()
    assert bench.breaker.state == "open"
    bench.wait_out_the_pause()
    failing.failed("reset")
    assert bench.told.opened == 1
    assert not is_refused(bench)


def test_what_began_while_it_was_open_does_not_count_once_it_has_closed(bench: Bench) -> None:
    bench.fail(3)
    probes = [bench.breaker.attempt(is_probe=True) for _ in range(5)]
    entered = [each.__enter__() for each in probes]
    bench.answer(is_probe=True)
    for probe in entered:
        probe.failed("reset")
    assert bench.breaker.state == "closed"


def test_a_trial_that_answers_and_then_breaks_off_is_a_failure_of_the_closed_breaker(bench: Bench) -> None:
    bench.fail(3)
    bench.wait_out_the_pause()
    with bench.breaker.attempt() as attempt:
        attempt.answered()
        attempt.failed("reset")
    bench.fail(1)
    assert bench.breaker.state == "closed"
    bench.fail(1)
    assert bench.breaker.state == "open"


def test_a_probe_goes_through_at_any_time_and_its_answer_closes_the_breaker_at_once(bench: Bench) -> None:
    bench.fail(3)
    bench.fail(20, is_probe=True)
    assert bench.told.opened == 1, "within the pause nothing more is learned from a probe that fails"
    bench.answer(is_probe=True)
    assert bench.breaker.state == "closed"
    assert not is_refused(bench)


def test_a_probe_that_hangs_keeps_no_caller_from_trying(bench: Bench) -> None:
    bench.fail(3)
    bench.wait_out_the_pause()
    with bench.breaker.attempt(is_probe=True):
        bench.answer()
        assert bench.breaker.state == "closed"


def test_probes_that_fail_open_it_before_a_caller_has_to(bench: Bench) -> None:
    bench.fail(3, is_probe=True)
    assert bench.breaker.state == "open"


def test_an_endpoint_that_is_there_again_is_tried_at_once_and_not_taken_at_its_word(bench: Bench) -> None:
    bench.fail(3)
    with bench.breaker.attempt(is_probe=True) as attempt:
        attempt.reached()
    assert bench.breaker.state == "open"
    bench.fail()
    assert bench.told.opened == 2
    assert is_refused(bench)


def test_reaching_an_endpoint_does_not_hide_its_failures(bench: Bench) -> None:
    bench.fail(2)
    with bench.breaker.attempt(is_probe=True) as attempt:
        attempt.reached()
    bench.fail()
    assert bench.breaker.state == "open"


def test_at_once_needs_no_second_failure(bench: Bench) -> None:
    with bench.breaker.attempt() as attempt:
        attempt.failed("refused", at_once=True)
    assert bench.breaker.state == "open"


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "probe", "answer", "fail", "leave", "wait"]),
        st.integers(0, 5),
        st.floats(0, 12, allow_nan=False),
    ),
    max_size=80,
)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_whatever_happens_calls_get_through_again_within_the_longest_pause(
    steps: list[tuple[str, int, float]],
) -> None:
    bench = Bench()
    running: list[tuple[object, Callable[..., object], Callable[..., object]]] = []
    pauses_s: list[float] = []
    for step, place, seconds in steps:
        if step == "wait":
            bench.clock.now += seconds
        elif step in ("begin", "probe"):
            was_closed, allowed = bench.breaker.state == "closed", bench.breaker.allows
            call = bench.breaker.attempt(is_probe=step == "probe")
            try:
                attempt = call.__enter__()
            except BackendUnavailable as refused:
                assert not was_closed
                assert not allowed
                pauses_s.append(refused.retry_after_s or 0.0)
            else:
                assert allowed or step == "probe"
                running.append((call, attempt.answered, attempt.failed))
        elif running:
            call, answered, failed = running[place % len(running)]
            if step == "answer":
                answered()
            elif step == "fail":
                failed("reset")
            else:
                running.remove((call, answered, failed))
                call.__exit__(None, None, None)  # type: ignore[attr-defined]
        assert bench.told.states[-1] == bench.breaker.state
    assert all(0 < pause_s <= 1.5 * PATIENCE.longest_pause_s for pause_s in pauses_s)
    bench.clock.now += 1.5 * PATIENCE.longest_pause_s + TRIAL_IS_WAITED_FOR_S
    bench.answer()
    assert bench.breaker.state == "closed"
