"""A budget of second tries: what fails is tried again only as often as does not make an outage worse.

A token bucket for each endpoint. Every call puts a tenth of a token in, every second try takes a whole one: so at most
a tenth of the calls are made twice. A floor, filled by time alone, is for endpoints that are asked now and then.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["RetryBudget", "Thrift", "pause_s"]

_PAUSE_S = (0.01, 0.05)


@dataclass(frozen=True)
class Thrift:
    """How many second tries there may be."""

    share: float = 0.1
    """Of the calls."""
    most: float = 10.0
    """At once, after many calls: what is saved up."""
    floor: float = 3.0
    """At once, without any calls before."""
    floor_a_s: float = 0.2
    """How fast the floor fills again."""


class RetryBudget:
    """What is left of one endpoint's second tries; `clock` is the time that it goes by."""

    def __init__(self, thrift: Thrift | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._thrift = thrift or Thrift()
        self._clock = clock
        self._left = self._thrift.floor
        self._filled_at = clock()

    def asked(self) -> None:
        """A call is made for the first time."""
        self._left = min(self._left + self._thrift.share, max(self._thrift.most, self._left))

    def take(self) -> bool:
        """Take one second try, if there is one."""
        self._fill()
        # Ten tenths are a little less than one.
        if self._left < 1 - 1e-9:
            return False
        self._left -= 1
        return True

    def _fill(self) -> None:
        now = self._clock()
        if self._left < self._thrift.floor:
            self._left = min(self._left + (now - self._filled_at) * self._thrift.floor_a_s, self._thrift.floor)
        self._filled_at = now


def pause_s(rng: random.Random) -> float:
    """How long to wait before the second try: not all who failed together come back together."""
    return rng.uniform(*_PAUSE_S)
