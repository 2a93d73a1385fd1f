"""Waiting for a budget: in a bounded queue, in turns between the callers.

Whose turn it is, is decided by deficit round-robin: each round gives every waiting caller the same share of the budget
as credit, and a request goes when its caller's credit covers its own share. So a caller with a hundred requests and one
with a single one get the same room, whatever the size of their requests. The request whose turn it is holds the turn
until there is room for it: nothing smaller slips past, and a large one always gets through.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from zooserve.errors import DeadlineExceeded, Overloaded
from zooserve_router.admission import Budget

__all__ = ["FairQueue"]

# Of the whole budget: about one ordinary chat on 16 slots. Smaller is no fairer, and takes more rounds.
_CREDIT_A_ROUND = 1 / 64


@dataclass(eq=False)
class _Waiter:
    caller: str
    tokens: int
    requests: int
    share: float
    turn: asyncio.Future[None]


@dataclass
class _Line:
    """One caller's requests, in the order in which they came, and what it may take in this round."""

    waiters: deque[_Waiter] = field(default_factory=deque)
    credit: float = 0.0


class FairQueue:
    """A budget that is waited for. `caller` is whoever shares are equal between."""

    def __init__(self, budget: Budget, most_waiting: int) -> None:
        self.budget = budget
        self.most_waiting = most_waiting
        self.changed: Callable[[int, int], None] = lambda taken, waiting: None
        """Told the tokens taken and the requests waiting whenever either changes."""
        self._lines: OrderedDict[str, _Line] = OrderedDict()

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return sum(len(line.waiters) for line in self._lines.values())

    async def admit(self, tokens: int, requests: int, caller: str) -> None:
        """Take so much as soon as it is this request's turn, to be given back by whoever took it.

        Raises Overloaded at once when the queue is full. Whoever waits no longer cancels this, and has taken nothing.
        A request larger than the whole budget is admitted alone.
        """
        if not self._lines and self.budget.has_room_for(tokens, requests):
            self.budget.take(tokens, requests)
            self._tell()
            return
        if self.waiting >= self.most_waiting:
            raise self._full(tokens, requests)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(caller, tokens, requests, self.budget.share_of(tokens, requests), turn)
        self._lines.setdefault(caller, _Line()).waiters.append(waiter)
        self._tell()
        try:
            await turn
        except asyncio.CancelledError:
            self._leave(waiter)
            raise

    def give_back(self, tokens: int, requests: int = 1) -> None:
        """Return what was taken, whole or in parts, and admit whom it makes room for."""
        self.budget.give_back(tokens, requests)
        self._admit_whom_there_is_room_for()

    def out_of_time(self) -> DeadlineExceeded:
        """What a request is told whose turn did not come by its deadline."""
        return DeadlineExceeded(
            f"{self.budget.name} had no room for this request before its time budget ran out: it waited behind others "
            "and was never started. Allow more with a longer client timeout or the x-request-timeout-ms header, or "
            "try again later."
        )

    def take_more(self, tokens: int) -> None:
        """What was taken has turned out to be more."""
        self.budget.take_anyway(tokens)
        self._tell()

    def _tell(self) -> None:
        self.changed(self.budget.taken_tokens, self.waiting)

    def _leave(self, waiter: _Waiter) -> None:
        if waiter.turn.done() and not waiter.turn.cancelled():  # its turn came while it was leaving
            self.give_back(waiter.tokens, waiter.requests)
            return
        self._remove(waiter)
        self._admit_whom_there_is_room_for()  # it may have been what the others waited behind

    def _admit_whom_there_is_room_for(self) -> None:
        while self._lines:
            waiter = self._next()
            if waiter.turn.cancelled():  # it is leaving, and has not run since
                self._remove(waiter)
                continue
            if not self.budget.has_room_for(waiter.tokens, waiter.requests):
                break
            self._lines[waiter.caller].credit -= waiter.share
            self._remove(waiter)
            self.budget.take(waiter.tokens, waiter.requests)
            waiter.turn.set_result(None)
        self._tell()

    def _next(self) -> _Waiter:
        """Whose turn it is; the same until it is removed."""
        while True:
            caller, line = next(iter(self._lines.items()))
            if line.credit >= line.waiters[0].share:
                return line.waiters[0]
            line.credit += _CREDIT_A_ROUND
            self._lines.move_to_end(caller)

    def _remove(self, waiter: _Waiter) -> None:
        line = self._lines.get(waiter.caller)
        if line is None or waiter not in line.waiters:
            return
        line.waiters.remove(waiter)
        if not line.waiters:  # and its credit is lost: nobody saves up by not asking
            del self._lines[waiter.caller]

    def _full(self, tokens: int, requests: int) -> Overloaded:
        waiters = [waiter for line in self._lines.values() for waiter in line.waiters]
        retry_after_s = self.budget.retry_after_s(
            tokens + sum(waiter.tokens for waiter in waiters), requests + sum(waiter.requests for waiter in waiters)
        )
        return Overloaded(
            f"{self.budget.name} is at its limit, and {len(waiters)} requests already wait for room, the most that "
            f"may; try again in {retry_after_s:.2f} s.",
            retry_after_s=retry_after_s,
        )
