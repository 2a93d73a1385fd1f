"""Percentiles of chat timings, and whether they keep to a target: pure, so that a recorded run can be judged again."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Finding", "Run", "Targets", "Timing", "judged", "percentile_by_rank"]


@dataclass(frozen=True)
class Timing:
    """One chat, in milliseconds from when it was sent; None for what never came."""

    first_ms: float | None
    """Until the first text was there to be seen."""
    whole_ms: float | None
    completion_tokens: int = 0
    error: str = ""


@dataclass(frozen=True)
class Targets:
    """What 95 of 100 chats shall keep to."""

    first_ms: float = 900
    whole_ms: float = 5000


@dataclass(frozen=True)
class Run:
    """The timings of one run, and how they came about."""

    about: dict[str, Any]
    chats: tuple[Timing, ...]

    def to_json(self) -> str:
        """For a file that `from_json` reads, one chat a line."""
        chats = ",\n  ".join(json.dumps(asdict(chat)) for chat in self.chats)
        return f'{{"about": {json.dumps(self.about)},\n "chats": [\n  {chats}\n ]}}\n'

    @classmethod
    def from_json(cls, text: str) -> "Run":
        """Raises ValueError for a file of another shape, or without a chat."""
        try:
            read = json.loads(text)
            run = cls(dict(read["about"]), tuple(Timing(**chat) for chat in read["chats"]))
        except (KeyError, TypeError) as exc:
            raise ValueError(f"not a recorded run: {exc!r}") from exc
        if not run.chats:
            raise ValueError("the recorded run holds no chat")
        return run


@dataclass(frozen=True)
class Finding:
    """One of the two questions, answered."""

    what: str
    p50_ms: float
    p95_ms: float
    target_ms: float

    @property
    def kept(self) -> bool:
        """Whether the target is kept; at the target still counts."""
        return self.p95_ms <= self.target_ms


def percentile_by_rank(values: Sequence[float], share: float) -> float:
    """The least value that at least this share of the values does not exceed: one that was measured, no mean of two."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def judged(chats: Sequence[Timing], targets: Targets) -> tuple[Finding, Finding]:
    """First text and whole answer, each by itself. What never came took for ever: it cannot flatter a percentile."""
    return (
        _finding("first visible token", [chat.first_ms for chat in chats], targets.first_ms),
        _finding("complete answer", [chat.whole_ms for chat in chats], targets.whole_ms),
    )


def _finding(what: str, times_ms: Sequence[float | None], target_ms: float) -> Finding:
    values = [math.inf if time is None else time for time in times_ms]
    return Finding(what, percentile_by_rank(values, 0.5), percentile_by_rank(values, 0.95), target_ms)
