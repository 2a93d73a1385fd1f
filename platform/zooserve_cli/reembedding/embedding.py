"""Texts of one part into vectors, through the platform's bulk class: at a pace, with patience, culprits singled out."""

import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from zooserve.errors import (
    BackendFailed,
    BackendUnavailable,
    BadInput,
    BodyTooLarge,
    DeadlineExceeded,
    InputTooLong,
    InternalError,
    Overloaded,
    Unreachable,
    ZooserveError,
)
from zooserve.sdk.blocking.client import Zoo
from zooserve.sdk.results import SparseVector

__all__ = ["Embedded", "Embedder", "Orders", "Pace"]

_TEXTS = 64
"""In one request: the router cuts it further; more would only delay what is said of progress and of culprits."""
_TIMEOUT_S = 120.0
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0

_PASSING = (Overloaded, BackendUnavailable, BackendFailed, DeadlineExceeded, InternalError, Unreachable)
"""May be gone in a while; anything else that is not about the text itself ends the job."""

_OF_THE_TEXTS = (BackendFailed, InternalError)
"""Of those what one text may bring about, each time again."""
_PROBE = "zooserve"
_SUSPECT = 3
"""Such failures in a row after which several texts are taken apart, if others are embedded meanwhile."""
_PROVEN = 5
"""The same of one text, which is then to blame: with its pauses, over 15 s."""

Result = TypeVar("Result")


class _FailsWithThese(Exception):
    """The platform fails at these texts, and embeds another."""


@dataclass(frozen=True)
class Orders:
    """What to embed with, for the processes that do it."""

    base_url: str
    api_key: str | None = field(repr=False)
    model: str
    """Pinned: `embed@1`."""
    space: str
    dimensions: int
    sparse_model: str = ""
    """Empty where there are no sparse vectors to make."""
    sparse_space: str = ""
    texts_per_s: float = 0.0
    """For each of these processes; 0 is as fast as the platform takes it."""
    patience_s: float = 300.0
    """How long a platform may be away, or refuse for overload, before the job ends."""


@dataclass(frozen=True)
class Embedded:
    """Vectors of the texts that got some. `places` are those of the texts, `vectors` their float32, one by one."""

    places: list[int]
    vectors: "array[float]"
    sparse: list[SparseVector]
    """As many as places, or none where no sparse vectors are made."""
    refused: dict[int, tuple[str, str]]
    """By the text's place the reason and what was said."""


class Pace:
    """No more than so many texts a second, in the long run and in the short."""

    def __init__(
        self,
        texts_per_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._interval_s = 1 / texts_per_s if texts_per_s else 0.0
        self._clock = clock
        self._sleep = sleep
        self._next_s = clock()

    def wait(self, texts: int) -> None:
        """Until these may be sent; nothing is saved up for later."""
        now = self._clock()
        if self._next_s > now:
            self._sleep(self._next_s - now)
        self._next_s = max(now, self._next_s) + texts * self._interval_s

    def settle(self) -> None:
        """Until the last ones have taken their time."""
        self.wait(0)


class Embedder:
    """One client of the platform, working by orders."""

    def __init__(self, orders: Orders, zoo: Zoo, pace: Pace, sleep: Callable[[float], None] = time.sleep) -> None:
        self._orders = orders
        self._zoo = zoo
        self._pace = pace
        self._sleep = sleep

    def embed(self, texts: Sequence[str]) -> Embedded:
        """All of them. Raises what ends the job: the platform is away for too long, or is another one."""
        done = Embedded([], array("f"), [], {})
        step = _TEXTS if not self._orders.texts_per_s else max(1, min(_TEXTS, int(self._orders.texts_per_s)))
        for start in range(0, len(texts), step):
            self._take(texts, list(range(start, min(start + step, len(texts)))), done)
        self._pace.settle()
        return done

    def _take(self, texts: Sequence[str], places: list[int], done: Embedded) -> None:
        """These together; if they are refused, each half, down to the one that is the cause."""
        asked = [texts[place] for place in places]
        try:
            self._pace.wait(len(asked))
            dense = self._patiently(lambda: self._dense(asked), len(asked))
            sparse = self._patiently(lambda: self._sparse(asked), len(asked)) if self._orders.sparse_model else []
        except (BadInput, BodyTooLarge, _FailsWithThese) as exc:
            if len(places) == 1:
                done.refused[places[0]] = (_reason(exc), str(exc))
                return
            half = len(places) // 2
            self._take(texts, places[:half], done)
            self._take(texts, places[half:], done)
            return
        done.places.extend(places)
        done.vectors.extend(dense)
        done.sparse.extend(sparse)

    def _dense(self, texts: list[str]) -> "array[float]":
        orders = self._orders
        made = self._zoo.embed(texts, model=orders.model, space=orders.space, slo_class="bulk", timeout_s=_TIMEOUT_S)
        return made.buffer

    def _sparse(self, texts: list[str]) -> list[SparseVector]:
        orders = self._orders
        made = self._zoo.embed_sparse(
            texts, model=orders.sparse_model, space=orders.sparse_space, slo_class="bulk", timeout_s=_TIMEOUT_S
        )
        return list(made.vectors)

    def _patiently(self, call: Callable[[], Result], texts: int) -> Result:
        waited_s, pause_s, failures, suspected = 0.0, _FIRST_PAUSE_S, 0, False
        while True:
            try:
                return call()
            except _PASSING as exc:
                failures = failures + 1 if isinstance(exc, _OF_THE_TEXTS) else 0
                if suspected and failures:  # again, right after another was embedded
                    raise _FailsWithThese(str(exc)) from exc
                suspected = failures >= (_PROVEN if texts == 1 else _SUSPECT) and self._embeds_another()
                if suspected:
                    continue
                asked_s = getattr(exc, "retry_after_s", None) or 0.0
                pause = max(pause_s, asked_s)
                if waited_s + pause > self._orders.patience_s:
                    raise
                self._sleep(pause)
                waited_s += pause
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _embeds_another(self) -> bool:
        try:
            self._dense([_PROBE])
        except ZooserveError:
            return False
        return True


def _reason(exc: Exception) -> str:
    if isinstance(exc, InputTooLong | BodyTooLarge):
        return "too long"
    return "fails in the platform" if isinstance(exc, _FailsWithThese) else "refused by the platform"


def sparse_as_json(vectors: Sequence[SparseVector]) -> list[Any]:
    """Two lists each."""
    return [[vector.indices.tolist(), vector.values.tolist()] for vector in vectors]
