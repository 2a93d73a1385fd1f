"""Admission: how many tokens may be in flight at once, and when to come back once that is reached."""

import time
from collections import deque

from zooserve.errors import Overloaded

__all__ = ["Budget"]

_DRAIN_WINDOW_S = 10.0
_RETRY_AFTER_BOUNDS_S = (0.05, 30.0)


class Budget:
    """A bound on the tokens in flight. Over it a request is refused at once, with the time to come back.

    The advice is what the budget lacks, divided by the rate at which tokens were given back of late.
    """

    def __init__(self, name: str, limit_tokens: int) -> None:
        self.name = name
        self.limit_tokens = limit_tokens
        self.taken_tokens = 0
        self._drained: deque[tuple[float, int]] = deque()

    def take(self, tokens: int) -> None:
        """Take `tokens`, to be given back by whoever took them, also when the client hangs up.

        Raises Overloaded if they do not fit beside what is in flight. A request larger than the whole budget is
        admitted alone, so that it is slow rather than impossible.
        """
        if self.taken_tokens and self.taken_tokens + tokens > self.limit_tokens:
            retry_after_s = self.retry_after_s(tokens)
            raise Overloaded(
                f"{self.name} is at its limit of {self.limit_tokens} tokens in flight; "
                f"try again in {retry_after_s:.2f} s.",
                retry_after_s=retry_after_s,
            )
        self.taken_tokens += tokens

    def give_back(self, tokens: int) -> None:
        """Return what was taken, whole or in parts."""
        self.taken_tokens -= tokens
        self._drained.append((time.monotonic(), tokens))
        self._forget()

    def retry_after_s(self, tokens: int) -> float:
        """Seconds until `tokens` should fit, from the drain rate of the last ten seconds."""
        self._forget()
        drained = sum(amount for _, amount in self._drained)
        lacking = self.taken_tokens + tokens - self.limit_tokens
        low, high = _RETRY_AFTER_BOUNDS_S
        if drained == 0:
            return 1.0
        return min(max(lacking * _DRAIN_WINDOW_S / drained, low), high)

    def _forget(self) -> None:
        horizon = time.monotonic() - _DRAIN_WINDOW_S
        while self._drained and self._drained[0][0] < horizon:
            self._drained.popleft()
