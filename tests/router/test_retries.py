"""The budget of second tries, by a clock that the test moves."""

import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from zooserve_observability.metrics import RouterMetrics
from zooserve_router.retries import RetryBudget, Thrift, pause_s
from zooserve_router.ways import Way, Ways

THRIFT = Thrift(share=0.1, most=10.0, floor=3.0, floor_a_s=0.2)


@dataclass
class Clock:
    """Time that the test moves."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def budget(clock: Clock) -> RetryBudget:
    return RetryBudget(THRIFT, clock)


def taken(budget: RetryBudget, times: int) -> int:
    return sum(budget.take() for _ in range(times))


def test_without_calls_there_is_the_floor_and_it_fills_again(budget: RetryBudget, clock: Clock) -> None:
    assert taken(budget, 10) == 3
    clock.now += 5
    assert taken(budget, 10) == 1
    clock.now += 1000
    assert taken(budget, 10) == 3


def test_a_tenth_of_the_calls_may_be_made_twice(budget: RetryBudget) -> None:
    assert taken(budget, 10) == 3
    second_tries = 0
    for _ in range(1000):
        budget.asked()
        second_tries += budget.take()
    assert second_tries == 100


def test_what_is_saved_up_has_a_bound(budget: RetryBudget) -> None:
    for _ in range(100_000):
        budget.asked()
    assert taken(budget, 100) == 10


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(st.just("call"), st.just("take"), st.floats(0, 30, allow_nan=False)), max_size=300))
def test_second_tries_never_exceed_their_share(steps: list[str | float]) -> None:
    clock = Clock()
    budget = RetryBudget(THRIFT, clock)
    calls = tries = 0
    for step in steps:
        if step == "call":
            budget.asked()
            calls += 1
        elif step == "take":
            tries += budget.take()
        else:
            clock.now += float(step)
        allowed = THRIFT.floor + THRIFT.share * calls + THRIFT.floor_a_s * (clock.now - 1000)
        assert tries <= allowed + 1e-6


def test_pauses_are_short_and_differ() -> None:
    rng = random.Random(1)
    pauses_s = [pause_s(rng) for _ in range(100)]
    assert 0.01 <= min(pauses_s) < max(pauses_s) <= 0.05
    assert len(set(pauses_s)) == 100


class Faulty:
    """Fails so often, then answers."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.asked = 0

    async def __call__(self) -> str:
        self.asked += 1
        if self.asked <= self.failures:
            raise ConnectionRefusedError
        return "hi"


@pytest.fixture
def metrics() -> RouterMetrics:
    return RouterMetrics(CollectorRegistry())


@pytest.fixture
def way(metrics: RouterMetrics, clock: Clock) -> Way:
    return Ways(metrics.endpoints, clock, random.Random(1)).way("zoo")


def counted(metrics: RouterMetrics, outcome: str) -> float:
    series = f'zooserve_retries_total{{endpoint="zoo",outcome="{outcome}"}}'
    (line,) = [line for line in metrics.exposition().decode().splitlines() if line.startswith(series)]
    return float(line.rpartition(" ")[2])


def refused(fault: Exception) -> bool:
    return isinstance(fault, ConnectionRefusedError)


async def test_a_second_try_that_works_is_counted(way: Way, metrics: RouterMetrics) -> None:
    send = Faulty(1)
    assert await way.tried(send, refused) == "hi"
    assert send.asked == 2
    assert [counted(metrics, outcome) for outcome in ("ok", "failed", "denied")] == [1, 0, 0]


async def test_there_is_no_third_try(way: Way, metrics: RouterMetrics) -> None:
    send = Faulty(2)
    with pytest.raises(ConnectionRefusedError):
        await way.tried(send, refused)
    assert send.asked == 2
    assert [counted(metrics, outcome) for outcome in ("ok", "failed", "denied")] == [0, 1, 0]


async def test_what_must_not_be_repeated_is_not(way: Way, metrics: RouterMetrics) -> None:
    send = Faulty(1)
    with pytest.raises(ConnectionRefusedError):
        await way.tried(send, lambda _: False)
    assert send.asked == 1
    assert [counted(metrics, outcome) for outcome in ("ok", "failed", "denied")] == [0, 0, 0]


async def test_without_budget_a_second_try_is_denied_and_counted(way: Way, metrics: RouterMetrics) -> None:
    while way.budget.take():
        pass
    send = Faulty(1)
    with pytest.raises(ConnectionRefusedError):
        await way.tried(send, refused)
    assert send.asked == 1
    assert [counted(metrics, outcome) for outcome in ("ok", "failed", "denied")] == [0, 0, 1]


def test_an_endpoints_series_are_there_from_the_start(way: Way, metrics: RouterMetrics) -> None:
    told = metrics.exposition().decode()
    assert 'zooserve_breaker_state{endpoint="zoo"} 0.0' in told
    assert 'zooserve_breaker_opened_total{endpoint="zoo"} 0.0' in told
    assert way.breaker.state == "closed"


def test_of_models_that_share_an_endpoint_the_worst_breaker_is_told(clock: Clock, metrics: RouterMetrics) -> None:
    ways = Ways(metrics.endpoints, clock, random.Random(1))
    one, other = ways.way("leaf:a:1"), ways.way("leaf:a:1")
    with one.breaker.attempt() as attempt:
        attempt.failed("refused", at_once=True)
    with other.breaker.attempt() as attempt:
        attempt.answered()
    assert 'zooserve_breaker_state{endpoint="leaf:a:1"} 2.0' in metrics.exposition().decode()
    assert (one.breaker.state, other.breaker.state) == ("open", "closed")
