"""A warning that is true all the time is said once a minute, with how often it would have been said."""

import logging
import time
from collections.abc import Callable

__all__ = ["OnceAMinute"]

_EVERY_S = 60.0


class OnceAMinute:
    """Says one thing's warnings at most once a minute."""

    def __init__(
        self, log: logging.Logger, every_s: float = _EVERY_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._every_s = every_s
        self._clock = clock
        self._said_at: float | None = None
        self._unsaid = 0

    def __call__(self, message: str, *values: object) -> None:
        """Say it, unless something was said less than a minute ago."""
        now = self._clock()
        if self._said_at is not None and now - self._said_at < self._every_s:
            self._unsaid += 1
            return
        repeated = f" ({self._unsaid} times more since the last warning)" if self._unsaid else ""
        self._log.warning(message + repeated, *values)
        self._said_at, self._unsaid = now, 0
