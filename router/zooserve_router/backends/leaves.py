"""Several leaves that serve one model: each answer from one of them, with what it has cached and holds in mind.

A leaf that cannot be reached is left out, and tried again after a pause by one request at a time. What it could not
begin, the next leaf does: until the first piece nothing has been sent to the caller.
"""

import logging
import random
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, aclosing, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from zooserve.errors import BackendFailed, BackendUnavailable, Overloaded, ServingError, Unsupported
from zooserve_router.affinity import affinity_key, chosen_leaf, estimated_tokens, ranked
from zooserve_router.chat.generation import Generation, Piece, Work
from zooserve_router.chat.models import ChatBackend

__all__ = ["Choose", "Leaves", "Told", "by_affinity"]

_log = logging.getLogger(__name__)
_PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0)
"""How long a leaf is left out, by the number of times in a row that it was found down; each varied by half."""
_UNANSWERED_IN_A_ROW = 3
"""A hung server refuses nothing: it shows by requests that run out of time without a piece."""
_TIME_ENOUGH_S = 1.0
_TIMER_SLACK_S = 0.05
"""Whoever sets the deadline may cancel a moment before it."""

Choose = Callable[[Generation, Mapping[str, int], int], str]
"""Picks a leaf from the loads of those that may be asked, for so many tokens."""


def by_affinity(idle_tokens: int) -> Choose:
    """The leaf that has the prompt's beginning, unless it is too busy; below `idle_tokens` none is."""

    def choose(generation: Generation, loads: Mapping[str, int], tokens: int) -> str:
        return chosen_leaf(ranked(affinity_key(generation), list(loads)), loads, tokens, idle_tokens)

    return choose


class Told(Protocol):
    """Who wants to know how the leaves fare."""

    def flying(self, leaf: str) -> AbstractContextManager[None]:
        """A generation is on this leaf for the block."""

    def left_out(self, leaf: str) -> None:
        """It was found down."""


@dataclass
class _Leaf:
    """One leaf, and what this router knows of it."""

    name: str
    backend: ChatBackend
    tokens: int = 0
    """KV tokens in flight, as this router sent them."""
    requests: int = 0
    failures: int = 0
    """Times in a row that it was found down."""
    unanswered: int = 0
    out_until: float = 0.0
    on_trial: bool = False

    @contextmanager
    def holding(self, tokens: int) -> Iterator[None]:
        """Count a generation in flight, however it ends."""
        self.tokens += tokens
        self.requests += 1
        try:
            yield
        finally:
            self.tokens -= tokens
            self.requests -= 1

    @contextmanager
    def tried(self) -> Iterator[None]:
        """Keep others away from a leaf that was down, until this request has shown whether it still is."""
        on_trial = self.failures > 0
        self.on_trial = self.on_trial or on_trial
        try:
            yield
        finally:
            if on_trial:
                self.on_trial = False

    def is_up(self) -> None:
        """It sent a piece."""
        if self.failures:
            _log.info("leaf %s answers again", self.name)
        self.failures = self.unanswered = 0
        self.out_until = 0.0
        self.on_trial = False


class Leaves:
    """A chat backend over several; `clock` and `rng` are the time and the chance that it goes by."""

    def __init__(
        self,
        leaves: Mapping[str, ChatBackend],
        choose: Choose,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
        told: Told | None = None,
    ) -> None:
        self._leaves = {name: _Leaf(name, backend) for name, backend in leaves.items()}
        self._choose = choose
        self._clock = clock
        self._rng = rng or random.SystemRandom()
        self._told = told

    def in_flight(self) -> Mapping[str, int]:
        """Generations in flight on each leaf."""
        return {name: leaf.requests for name, leaf in self._leaves.items()}

    def left_out(self) -> frozenset[str]:
        """The leaves that are down, as far as this router knows."""
        return frozenset(name for name, leaf in self._leaves.items() if leaf.failures)

    async def generate(self, work: Work, timeout_s: float) -> AsyncGenerator[Piece, None]:
        """The answer of one leaf. Each leaf is asked at most once, and a second one only before the first piece.

        Raises BackendUnavailable when every leaf is down, Overloaded when those that are not have no room.
        """
        if not isinstance(work, Generation):
            raise Unsupported("Leaves take rendered prompts only.")
        ends_at = self._clock() + timeout_s
        asked: set[str] = set()
        fault: BackendUnavailable | Overloaded = BackendUnavailable(
            f"All {len(self._leaves)} leaves of this model are down; they are tried again within seconds."
        )
        while name := self._next(work, asked):
            asked.add(name)
            begun = False
            try:
                async with aclosing(self._ask(self._leaves[name], work, ends_at)) as pieces:
                    async for piece in pieces:
                        begun = True
                        yield piece
                return
            except (BackendUnavailable, Overloaded) as exc:
                if begun:
                    raise self._broken_off(exc) from exc
                fault = fault if isinstance(fault, Overloaded) else exc
        raise fault

    def _broken_off(self, fault: ServingError) -> ServingError:
        """What a caller is told whose answer stopped; while another leaf is up, the model is not unavailable."""
        if len(self.left_out()) == len(self._leaves):
            return fault
        return BackendFailed(f"The answer broke off: {fault.message} Another server is up: send the request again.")

    def _next(self, work: Generation, asked: set[str]) -> str | None:
        """The leaf to ask, of those that were not asked yet and are not left out."""
        now = self._clock()
        loads = {
            name: leaf.tokens
            for name, leaf in self._leaves.items()
            if name not in asked and not leaf.on_trial and leaf.out_until <= now
        }
        return self._choose(work, loads, estimated_tokens(work)) if loads else None

    async def _ask(self, leaf: _Leaf, work: Generation, ends_at: float) -> AsyncGenerator[Piece, None]:
        """One leaf's answer; what it shows of the leaf's health is noted."""
        begun, timeout_s = False, max(0.0, ends_at - self._clock())
        try:
            with leaf.holding(estimated_tokens(work)), leaf.tried(), self._flying(leaf):
                async with aclosing(leaf.backend.generate(work, timeout_s)) as pieces:
                    async for piece in pieces:
                        begun = True
                        leaf.is_up()
                        yield piece
        except BackendUnavailable as fault:
            self._leave_out(leaf, fault.message)
            raise
        finally:
            if not begun and timeout_s >= _TIME_ENOUGH_S and self._clock() >= ends_at - _TIMER_SLACK_S:
                self._note_silence(leaf)

    def _flying(self, leaf: _Leaf) -> AbstractContextManager[None]:
        return nullcontext() if self._told is None else self._told.flying(leaf.name)

    def _note_silence(self, leaf: _Leaf) -> None:
        leaf.unanswered += 1
        if leaf.unanswered >= _UNANSWERED_IN_A_ROW:
            self._leave_out(leaf, f"it left {_UNANSWERED_IN_A_ROW} requests in a row without an answer")

    def _leave_out(self, leaf: _Leaf, reason: str) -> None:
        if leaf.out_until > self._clock():
            return  # many answers break off when one leaf dies: that is one failure, not one each
        pause_s = _PAUSES_S[min(leaf.failures, len(_PAUSES_S) - 1)] * self._rng.uniform(0.5, 1.5)
        _log.warning("leaf %s is left out for %.1f s: %s", leaf.name, pause_s, reason)
        leaf.failures += 1
        leaf.unanswered = 0
        if self._told is not None:
            self._told.left_out(leaf.name)
        leaf.out_until = self._clock() + pause_s
