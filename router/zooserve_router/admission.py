"""Admission: how much may be in flight at once, and when to come back once that is reached."""

import time
from collections import deque
from typing import Literal

from zooserve.errors import Overloaded

__all__ = ["Budget"]

_DRAIN_WINDOW_S = 10.0
_RETRY_AFTER_BOUNDS_S = (0.05, 30.0)


class Budget:
    """A bound on the tokens in flight, and on the backend's requests where there is a queue that must not fill.

    Over either a request is refused at once, with the time to come back: what is lacking, divided by the rate at
    which as much was given back of late.
    """

    def __init__(self, name: str, limit_tokens: int | None, limit_requests: int | None = None) -> None:
        self.name = name
        self._tokens = _Bound("tokens", limit_tokens)
        self._requests = _Bound("requests", limit_requests)

    @property
    def limit_tokens(self) -> int | None:
        """The most tokens in flight, but for a request that is larger by itself."""
        return self._tokens.limit

    @property
    def limit_requests(self) -> int | None:
        """The most of the backend's requests in flight."""
        return self._requests.limit

    @property
    def taken_tokens(self) -> int:
        """The tokens in flight."""
        return self._tokens.taken

    @property
    def taken_requests(self) -> int:
        """The backend's requests in flight."""
        return self._requests.taken

    def take(self, tokens: int, requests: int = 1) -> None:
        """Take so much, to be given back by whoever took it, also when the client hangs up.

        Raises Overloaded if it does not fit beside what is in flight. A request larger than the whole budget is
        admitted alone, so that it is slow rather than impossible.
        """
        wanted = ((self._tokens, tokens), (self._requests, requests))
        full = [bound for bound, amount in wanted if not bound.has_room_for(amount)]
        if full:
            retry_after_s = max(bound.retry_after_s(amount) for bound, amount in wanted if bound in full)
            raise Overloaded(
                f"{self.name} is at its limit of {full[0].limit} {full[0].unit} in flight; "
                f"try again in {retry_after_s:.2f} s.",
                retry_after_s=retry_after_s,
            )
        self.take_anyway(tokens, requests)

    def lacks(self, tokens: int, requests: int = 1) -> Literal["tokens", "requests"]:
        """Of what there is not enough for so much, where `take` would refuse it."""
        return (
            "requests" if self._tokens.has_room_for(tokens) and not self._requests.has_room_for(requests) else "tokens"
        )

    def take_anyway(self, tokens: int, requests: int = 0) -> None:
        """Take so much whether or not there is room: what is in flight already turned out to be more."""
        self._tokens.taken += tokens
        self._requests.taken += requests

    def has_room_for(self, tokens: int, requests: int = 1) -> bool:
        """Whether `take` would take so much."""
        return self._tokens.has_room_for(tokens) and self._requests.has_room_for(requests)

    def share_of(self, tokens: int, requests: int = 1) -> float:
        """How much of the whole budget this is, by the bound that it fills most; at most 1."""
        return min(1.0, max(self._tokens.share_of(tokens), self._requests.share_of(requests)))

    def give_back(self, tokens: int, requests: int = 1) -> None:
        """Return what was taken, whole or in parts."""
        self._tokens.give_back(tokens)
        self._requests.give_back(requests)

    def retry_after_s(self, tokens: int, requests: int = 0) -> float:
        """Seconds until so much should fit, from the drain rate of the last ten seconds."""
        wanted = ((self._tokens, tokens), (self._requests, requests))
        return max((bound.retry_after_s(amount) for bound, amount in wanted if bound.limit is not None), default=1.0)


class _Bound:
    """One thing that is counted, up to a limit if it has one."""

    def __init__(self, unit: str, limit: int | None) -> None:
        self.unit = unit
        self.limit = limit
        self.taken = 0
        self._drained: deque[tuple[float, int]] = deque()
        self._drained_amount = 0

    def has_room_for(self, amount: int) -> bool:
        return self.limit is None or not self.taken or self.taken + amount <= self.limit

    def share_of(self, amount: int) -> float:
        return 0.0 if self.limit is None else amount / self.limit

    def give_back(self, amount: int) -> None:
        if amount:
            self.taken -= amount
            self._drained.append((time.monotonic(), amount))
            self._drained_amount += amount
        self._forget()

    def retry_after_s(self, amount: int) -> float:
        self._forget()
        lacking = self.taken + amount - (self.limit or 0)
        low, high = _RETRY_AFTER_BOUNDS_S
        if not self._drained_amount:
            return 1.0
        return min(max(lacking * _DRAIN_WINDOW_S / self._drained_amount, low), high)

    def _forget(self) -> None:
        horizon = time.monotonic() - _DRAIN_WINDOW_S
        while self._drained and self._drained[0][0] < horizon:
            self._drained_amount -= self._drained.popleft()[1]
