"""Several leaves that serve one model: each answer from one of them, with what it has cached and holds in mind.

Each leaf has a circuit breaker, which opens as soon as the leaf is found down, since another one can be asked. What a
leaf could not begin, the next one does: until the first piece nothing has been sent to the caller.
"""

import random
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, aclosing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from zooserve.errors import BackendFailed, BackendUnavailable, Overloaded, ServingError, Unsupported
from zooserve_router.affinity import affinity_key, chosen_leaf, estimated_tokens, ranked
from zooserve_router.backends.guarded import guarded
from zooserve_router.breaker import BREAKER_OPEN, Breaker, Patience
from zooserve_router.chat.generation import Generation, Piece, Work
from zooserve_router.chat.models import ChatBackend
from zooserve_router.ways import Ways

__all__ = ["Choose", "Leaves", "Told", "by_affinity"]

_PATIENCE = Patience(failures=3, window_s=600.0, first_pause_s=0.5, longest_pause_s=10.0, usual_s=1.0)
"""Three are requests that run out of time without a piece, in a row: a hung server refuses nothing."""

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
    breaker: Breaker
    tokens: int = 0
    """KV tokens in flight, as this router sent them."""
    requests: int = 0

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


class Leaves:
    """A chat backend over several; `clock` and `rng` are the time and the chance that it goes by."""

    def __init__(
        self,
        leaves: Mapping[str, ChatBackend],
        choose: Choose,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
        told: Told | None = None,
        ways: Ways | None = None,
    ) -> None:
        ways = ways or Ways(clock=clock, rng=rng)
        self._leaves = {
            name: _Leaf(
                name,
                backend,
                ways.way(f"leaf:{name}", _PATIENCE, None if told is None else partial(told.left_out, name)).breaker,
            )
            for name, backend in leaves.items()
        }
        self._choose = choose
        self._clock = clock
        self._told = told

    def in_flight(self) -> Mapping[str, int]:
        """Generations in flight on each leaf."""
        return {name: leaf.requests for name, leaf in self._leaves.items()}

    def left_out(self) -> frozenset[str]:
        """The leaves that are down, as far as this router knows."""
        return frozenset(name for name, leaf in self._leaves.items() if not leaf.breaker.is_closed)

    @property
    def is_mistrusted(self) -> bool:
        """Whether every leaf is left out."""
        return len(self.left_out()) == len(self._leaves)

    async def generate(self, work: Work, timeout_s: float) -> AsyncGenerator[Piece, None]:
        """The answer of one leaf. Each leaf is asked at most once, and a second one only before the first piece.

        Raises BackendUnavailable when every leaf is down, Overloaded when those that are not have no room.
        """
        if not isinstance(work, Generation):
            raise Unsupported("Leaves take rendered prompts only.")
        ends_at = self._clock() + timeout_s
        asked: set[str] = set()
        fault: BackendUnavailable | Overloaded = self._all_left_out()
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

    def _all_left_out(self) -> BackendUnavailable:
        pause_s = min(leaf.breaker.pause_s for leaf in self._leaves.values())
        return BackendUnavailable(
            f"All {len(self._leaves)} leaves of this model are down; they are tried again within seconds.",
            code=BREAKER_OPEN,
            retry_after_s=pause_s,
        )

    def _broken_off(self, fault: ServingError) -> ServingError:
        """What a caller is told whose answer stopped; while another leaf is up, the model is not unavailable."""
        if self.is_mistrusted:
            return fault
        return BackendFailed(f"The answer broke off: {fault.message} Another server is up: send the request again.")

    def _next(self, work: Generation, asked: set[str]) -> str | None:
        """The leaf to ask, of those that were not asked yet and are not left out; a probe asks those, too."""
        left = {name: leaf for name, leaf in self._leaves.items() if name not in asked}
        loads = {name: leaf.tokens for name, leaf in left.items() if leaf.breaker.allows}
        if not loads and work.is_probe:
            loads = {name: leaf.tokens for name, leaf in left.items()}
        return self._choose(work, loads, estimated_tokens(work)) if loads else None

    async def _ask(self, leaf: _Leaf, work: Generation, ends_at: float) -> AsyncGenerator[Piece, None]:
        """One leaf's answer; what it shows of the leaf's health is noted."""
        timeout_s = max(0.0, ends_at - self._clock())
        with leaf.holding(estimated_tokens(work)), self._flying(leaf):
            answer = guarded(leaf.backend, leaf.breaker, work, timeout_s, at_once=True)
            async with aclosing(answer) as pieces:
                async for piece in pieces:
                    yield piece

    def _flying(self, leaf: _Leaf) -> AbstractContextManager[None]:
        return nullcontext() if self._told is None else self._told.flying(leaf.name)
