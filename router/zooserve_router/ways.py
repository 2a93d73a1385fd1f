"""The ways to the backends: for each endpoint its circuit breaker and its budget of second tries.

An endpoint has a short name that its metrics go by: `zoo`, `leaf` (the platform's own), `leaf:HOST:PORT` (one of the
catalogue's), or the name of the model that an upstream or the engine serves.
"""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from zooserve_observability.endpoint_metrics import BreakerState, EndpointMetrics, RetryOutcome
from zooserve_router.breaker import Breaker, Patience
from zooserve_router.retries import RetryBudget, pause_s

__all__ = ["Way", "Ways"]

T = TypeVar("T")
_FROM_BEST_TO_WORST: tuple[BreakerState, ...] = ("closed", "half_open", "open")


@dataclass(frozen=True)
class Way:
    """The way to one endpoint."""

    endpoint: str
    breaker: Breaker
    budget: RetryBudget
    rng: random.Random
    metrics: EndpointMetrics | None = None

    async def tried(self, send: Callable[[], Awaitable[T]], may_repeat: Callable[[Exception], bool]) -> T:
        """What `send` brings; once more, after a short random pause, where its failure may be repeated."""
        self.budget.asked()
        try:
            return await send()
        except Exception as fault:
            if not may_repeat(fault):
                raise
            if not self.budget.take():
                self._count("denied")
                raise
        await asyncio.sleep(pause_s(self.rng))
        try:
            answer = await send()
        except Exception:
            self._count("failed")
            raise
        self._count("ok")
        return answer

    def _count(self, outcome: RetryOutcome) -> None:
        if self.metrics is not None:
            self.metrics.retried(self.endpoint, outcome)


class Ways:
    """Makes the ways, and tells their state: where models share an endpoint, the worst of their breakers."""

    def __init__(
        self,
        metrics: EndpointMetrics | None = None,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self._metrics = metrics
        self._clock = clock
        self._rng = rng or random.SystemRandom()
        self._states: defaultdict[str, dict[int, BreakerState]] = defaultdict(dict)

    def way(self, endpoint: str, patience: Patience | None = None, opened: Callable[[], None] | None = None) -> Way:
        """A way of its own to this endpoint, `opened` told whenever its breaker does. Its series are there at once."""
        if self._metrics is not None:
            self._metrics.knows(endpoint)
        place = len(self._states[endpoint])
        told = _Told(self, place, opened)
        breaker = Breaker(endpoint, patience, self._clock, self._rng, told)
        return Way(endpoint, breaker, RetryBudget(clock=self._clock), self._rng, self._metrics)

    def told(self, endpoint: str, place: int, state: BreakerState) -> None:
        """One of an endpoint's breakers is in this state."""
        states = self._states[endpoint]
        states[place] = state
        if self._metrics is not None:
            self._metrics.breaker(endpoint, max(states.values(), key=_FROM_BEST_TO_WORST.index))

    def opened(self, endpoint: str) -> None:
        """One of them has opened."""
        if self._metrics is not None:
            self._metrics.breaker_opened(endpoint)


@dataclass(frozen=True)
class _Told:
    """What one breaker tells, with which of its endpoint's it is."""

    ways: Ways
    place: int
    also: Callable[[], None] | None

    def breaker(self, endpoint: str, state: BreakerState) -> None:
        self.ways.told(endpoint, self.place, state)

    def breaker_opened(self, endpoint: str) -> None:
        self.ways.opened(endpoint)
        if self.also is not None:
            self.also()
