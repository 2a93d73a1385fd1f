"""A circuit breaker: an endpoint that fails again and again is left alone for a while.

`closed`: every call goes through. So many failures in a row, all within a window, open it.
`open`: calls are refused at once, for a pause that doubles from opening to opening up to a bound, varied by half.
`half open`: the pause is over, and one call at a time is let through as a trial. An answer closes the breaker, a
failure opens it for longer. A trial that ends without either, such as one whose caller left, changes nothing: the next
call is one. A trial that says nothing for as long as the longest pause is no longer waited for.

A probe is let through in any state, and what it shows counts: whoever comes back is seen by the first that succeeds.
It is no trial: what it proves may hang for itself, and must not keep callers of others waiting.

What is a failure, whoever calls decides: to find nobody there, a connection that breaks, a 5xx. Refusals (4xx, 429, a
full queue) are answers. Nor is it one when a caller leaves, or allowed less time than `usual_s`, or when the endpoint
says nothing to one call while it answers another.
"""

import logging
import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from zooserve.errors import BackendUnavailable
from zooserve_observability.endpoint_metrics import BreakerState

__all__ = ["BREAKER_OPEN", "Attempt", "Breaker", "Patience", "Told"]

BREAKER_OPEN = "breaker_open"
"""The code of the refusal. It says nothing new about the endpoint."""
_TIMER_SLACK_S = 0.05
"""Whoever sets the deadline may cancel a moment before it."""
_LEAST_PAUSE_S = 0.05
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Patience:
    """How much is borne of an endpoint, and for how long it is left alone."""

    failures: int = 5
    """In a row, before it is left alone."""
    window_s: float = 60.0
    """Within which they must lie."""
    first_pause_s: float = 0.5
    longest_pause_s: float = 5.0
    usual_s: float = 10.0
    """Who allows less than this and gets no answer has learned nothing about the endpoint."""


class Told(Protocol):
    """Who wants to know what state the breakers are in."""

    def breaker(self, endpoint: str, state: BreakerState) -> None: ...

    def breaker_opened(self, endpoint: str) -> None: ...


class Breaker:
    """The breaker of one endpoint; `clock` and `rng` are the time and the chance that it goes by."""

    def __init__(
        self,
        endpoint: str,
        patience: Patience | None = None,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
        told: Told | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.clock = clock
        self.patience = patience or Patience()
        self._rng = rng or random.SystemRandom()
        self._told = told
        self._failed_at: deque[float] = deque(maxlen=self.patience.failures)
        self._era = 0
        """Counts openings and closings: what began in an earlier era says nothing about this one."""
        self.answers = 0
        """Counts what any call got."""
        self._openings = 0
        """In a row, without an answer between."""
        self._open_until = 0.0
        self._trial: Attempt | None = None
        self._tell()

    @property
    def is_closed(self) -> bool:
        """Whether every call goes through."""
        return not self._openings

    @property
    def state(self) -> BreakerState:
        """As the metric tells it."""
        if self.is_closed:
            return "closed"
        return "open" if self._trial is None else "half_open"

    @property
    def allows(self) -> bool:
        """Whether a call would be let through now."""
        return self.is_closed or self._allows_trial()

    @property
    def pause_s(self) -> float:
        """For how long nothing is let through; a little where a trial is under way, or nothing is in the way."""
        return max(self._open_until - self.clock(), _LEAST_PAUSE_S)

    @contextmanager
    def attempt(self, timeout_s: float | None = None, *, is_probe: bool = False) -> Iterator["Attempt"]:
        """One call, which says what becomes of it. Raises BackendUnavailable where none is let through.

        With `timeout_s` a call that has used it up without a word is a failure.
        """
        if not self.allows and not is_probe:
            raise self.refusal()
        attempt = Attempt(self, self._era)
        if self._openings and not is_probe and self._allows_trial():
            self._trial = attempt
            self._tell()
        try:
            yield attempt
        finally:
            if timeout_s is not None and not attempt.is_told and self._is_silence(timeout_s, attempt):
                attempt.fell_silent(timeout_s)
            if self._trial is attempt:
                self._trial = None
                self._tell()

    def refusal(self) -> BackendUnavailable:
        """What a call is told that is not let through."""
        return BackendUnavailable(
            f"The server behind this model ({self.endpoint}) has failed and is left alone for a moment: this request "
            f"was not sent. Try again in {self.pause_s:.2f} s.",
            code=BREAKER_OPEN,
            retry_after_s=self.pause_s,
        )

    def answered(self, attempt: "Attempt") -> None:
        """The endpoint works."""
        self.answers += 1
        if attempt.era != self._era:
            return
        self._failed_at.clear()
        if self._openings:
            _log.info("%s answers again", self.endpoint)
            self._openings, self._trial = 0, None
            self._era += 1
            attempt.era = self._era  # what is still to come of this call counts
            self._tell()

    def reached(self, attempt: "Attempt") -> None:
        """The endpoint is there, which does not prove that it works: the next call may try."""
        if attempt.era == self._era and self._openings:
            self._open_until = min(self._open_until, self.clock())

    def failed(self, attempt: "Attempt", reason: str, *, at_once: bool = False) -> None:
        """The endpoint failed. `at_once`: it takes no other failures to open the breaker."""
        now = self.clock()
        if attempt.era != self._era or (self._openings and now < self._open_until):
            return  # many calls break off when one endpoint dies: that is one failure, not one each
        if not self._openings:
            self._failed_at.append(now)
            if not at_once and not self._is_enough(now):
                return
        self._open(now, reason)

    def _is_enough(self, now: float) -> bool:
        failed_at = self._failed_at
        return len(failed_at) == self.patience.failures and failed_at[0] >= now - self.patience.window_s

    def _open(self, now: float, reason: str) -> None:
        if not self._openings:
            self._era += 1
        doubled_s = self.patience.first_pause_s * 2 ** min(self._openings, 30)
        pause_s = min(doubled_s, self.patience.longest_pause_s) * self._rng.uniform(0.5, 1.5)
        self._openings += 1
        self._open_until = now + pause_s
        self._trial = None
        self._failed_at.clear()
        _log.warning("%s is left alone for %.1f s: %s", self.endpoint, pause_s, reason)
        if self._told is not None:
            self._told.breaker_opened(self.endpoint)
        self._tell()

    def _allows_trial(self) -> bool:
        now = self.clock()
        trial = self._trial
        return now >= self._open_until and (
            trial is None or now >= trial.began_at + max(self.patience.longest_pause_s, self.patience.usual_s)
        )

    def _is_silence(self, timeout_s: float, attempt: "Attempt") -> bool:
        spent_s = self.clock() - attempt.began_at
        return timeout_s >= self.patience.usual_s and spent_s >= timeout_s - _TIMER_SLACK_S

    def _tell(self) -> None:
        if self._told is not None:
            self._told.breaker(self.endpoint, self.state)


class Attempt:
    """One call through a breaker. Whoever makes it says what it showed; nothing said is nothing learned."""

    def __init__(self, breaker: Breaker, era: int) -> None:
        self.era = era
        self.began_at = breaker.clock()
        self.is_told = False
        self._answers_before = breaker.answers
        self._breaker = breaker

    def answered(self) -> None:
        """The endpoint works, also where it refuses this call."""
        self.is_told = True
        self._breaker.answered(self)

    def reached(self) -> None:
        """The endpoint is there; whether it works is not known yet."""
        self.is_told = True
        self._breaker.reached(self)

    def failed(self, reason: str, *, at_once: bool = False) -> None:
        """The endpoint failed, which opens its breaker with the first failure where it shall do so `at_once`."""
        self.is_told = True
        self._breaker.failed(self, reason, at_once=at_once)

    def fell_silent(self, spent_s: float) -> None:
        """So long nothing came. Where others were answered meanwhile, that is this call's own affair."""
        if self._breaker.answers == self._answers_before:
            self.failed(f"it said nothing for {spent_s:.1f} s")
