"""One total time budget of a call: every try, pause and part of it draws on the same seconds."""

import math
import time
from dataclasses import dataclass
from numbers import Real

from zooserve.errors import BadInput, DeadlineExceeded

__all__ = ["Budget", "checked_seconds", "left"]

_ENDLESS_S = 31 * 86_400
"""Sockets and event loops count no further than some decades, and nobody waits for them."""


@dataclass(frozen=True)
class Budget:
    """`total_s` seconds, over at `ends_at` on the monotonic clock. An infinite one never ends."""

    total_s: float
    ends_at: float

    @classmethod
    def of(cls, total_s: float) -> "Budget":
        """A budget that begins now. Raises BadInput unless it is a number of seconds above 0."""
        seconds = checked_seconds(total_s)
        return cls(seconds, time.monotonic() + seconds)

    def remaining_s(self) -> float:
        """What is left, never less than 0."""
        return max(0.0, self.ends_at - time.monotonic())

    def headers(self) -> dict[str, str]:
        """`x-request-timeout-ms` of what is left, so that the platform stops working for nobody; none if infinite."""
        if math.isinf(self.total_s):
            return {}
        return {"x-request-timeout-ms": str(max(1, int(self.remaining_s() * 1000)))}

    def exceeded(self) -> DeadlineExceeded:
        """The error of its end."""
        return DeadlineExceeded(
            f"There was no whole answer within {self.total_s:g} s. `timeout_s` is for a call as a whole, with all its "
            "tries and parts: allow more, or send less at once."
        )


def left(budget: Budget) -> float:
    """What is left of it, as the `timeout_s` of one call of several. Raises DeadlineExceeded if nothing is."""
    remaining_s = budget.remaining_s()
    if not remaining_s:
        raise budget.exceeded()
    return remaining_s


def checked_seconds(value: float) -> float:
    """The value, infinite from a month on. Raises BadInput unless it is a number above 0."""
    if isinstance(value, bool) or not isinstance(value, Real) or not value > 0:
        raise BadInput(f"`timeout_s` is {value!r}; it must be a number of seconds above 0.", param="timeout_s")
    return float(value) if value < _ENDLESS_S else math.inf
