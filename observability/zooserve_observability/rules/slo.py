"""What is promised: the objectives that the burn rates are measured against. Change them here, then `make rules`.

A limit on a time has to be a bucket's bound of the histogram that measures it; the error of another one lists them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from zooserve import errors
from zooserve.catalogue import Task
from zooserve_observability import vocabulary
from zooserve_observability.vocabulary import Metric

__all__ = [
    "AVAILABILITY",
    "BURNS",
    "FAILURES",
    "FEWEST_BAD",
    "FIRST_TOKEN",
    "LATENCY",
    "LATENCY_SHARE",
    "TOKEN_PACE",
    "Burn",
    "Promise",
]


Severity = Literal["page", "ticket"]
"""`page` wakes somebody; `ticket` can wait until the morning."""


@dataclass(frozen=True)
class Promise:
    """So large a share of what a histogram measures stays within a limit."""

    measured_by: Metric
    limit_s: float
    share: float

    def __post_init__(self) -> None:
        """Only a bucket's bound can be asked for exactly."""
        if self.limit_s not in self.measured_by.buckets:
            bounds = ", ".join(f"{bound:g}" for bound in self.measured_by.buckets)
            raise ValueError(
                f"{self.measured_by.name} has no bucket up to {self.limit_s:g} s. Choose one of: {bounds}."
            )


AVAILABILITY = 0.999
"""Of the requests that could be answered, so many are: neither refusals nor what callers got wrong count."""

FAILURES: tuple[type[errors.ServingError], ...] = (
    errors.BackendUnavailable,
    errors.BackendFailed,
    errors.DeadlineExceeded,
    errors.InternalError,
)
"""What breaks that promise: every error that is told as a 5xx."""

LATENCY_SHARE = 0.99
_LATENCY_S: Mapping[Task, float] = {"embed": 0.64, "sparse": 0.64, "classify": 0.64, "rag_query": 0.64, "rerank": 2.56}
LATENCY: Mapping[Task, Promise] = MappingProxyType(
    {task: Promise(vocabulary.REQUEST_DURATION, limit_s, LATENCY_SHARE) for task, limit_s in _LATENCY_S.items()}
)
"""Interactive requests by their model's task. A chat takes as long as its answer: the next two are its promises."""

FIRST_TOKEN = Promise(vocabulary.FIRST_TOKEN, 1.28, 0.95)
TOKEN_PACE = Promise(vocabulary.OUTPUT_TOKEN, 0.1, 0.95)
"""Ten tokens a second: about twice as fast as people read."""

FEWEST_BAD = 10
"""Fewer bad ones in a burn's long window are no evidence, whatever their share: one of three in the night."""


@dataclass(frozen=True)
class Burn:
    """How fast an objective's error budget goes before somebody is told: as in chapter 5 of Google's SRE Workbook."""

    short: str
    long: str
    factor: float
    """1 uses up the budget of 30 days in 30 days."""
    severity: Severity
    hold: str
    """How long both windows have to agree."""

    def threshold(self, objective: float) -> float:
        """The share of bad ones from which it burns so fast."""
        return round(self.factor * (1 - objective), 10)


BURNS = (
    # 2% of the month's budget in the hour; the short window ends the alert soon after the trouble.
    Burn("5m", "1h", 14.4, "page", "2m"),
    # 5% of it in six hours.
    Burn("30m", "6h", 6, "ticket", "15m"),
)
