"""How fast error budgets burn: for each objective the share of bad requests over four windows, and how many are bad.

Ratios have no value where there was no traffic: nothing is divided by zero, and at rest nothing can fire.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from zooserve import errors
from zooserve.catalogue import Task
from zooserve_observability import vocabulary
from zooserve_observability.metrics import UNKNOWN_MODEL
from zooserve_observability.rules.promql import among, bucket, selected, summed
from zooserve_observability.rules.rule import Alert, Condition, Recording
from zooserve_observability.rules.slo import (
    AVAILABILITY,
    BURNS,
    FAILURES,
    FEWEST_BAD,
    FIRST_TOKEN,
    LATENCY,
    LATENCY_SHARE,
    TOKEN_PACE,
    Burn,
    Promise,
)

__all__ = ["ALERTS", "RECORDINGS"]

_BY = ("model", "class")
_WINDOWS = tuple(chain(*((burn.short, burn.long) for burn in BURNS)))
_INTERACTIVE = among("class", "interactive")
_KNOWN = f'model!="{UNKNOWN_MODEL}"'
_BEFORE_A_MODEL = (f'model="{UNKNOWN_MODEL}"', among("outcome", errors.InternalError.__name__))

Counted = Callable[[str, str], str]
"""The expression for what is counted by model and class, from the function that does it (`rate`) and a window."""


@dataclass(frozen=True)
class Indicator:
    """What an objective is about: which requests are bad, of which."""

    name: str
    objective: float
    bad: Counted
    whole: Counted
    task: Task | None = None
    """Of the models that it is about, where it is not about all; its series bear it."""

    def ratio(self, window: str) -> Recording:
        """The share of bad ones in a window."""
        share = f"({self.bad('rate', window)})\n/\n({self.whole('rate', window)} > 0)"
        return self._recorded(f"ratio_rate{window}", share)

    def increase(self, window: str) -> Recording:
        """How many were bad in a window."""
        return self._recorded(f"increase{window}", self.bad("increase", window))

    def _recorded(self, how: str, expr: str) -> Recording:
        record = f"zooserve:{self.name}:{how}"
        if self.task is None:
            return Recording(record, expr, _BY)
        info = selected(vocabulary.MODEL_INFO, (among("task", self.task),))
        return Recording(record, f"({expr})\nand on (model)\n{info}", _BY, (("task", self.task),))


def _answerable(over: str, window: str) -> str:
    outcomes = among("outcome", "ok", *(failure.__name__ for failure in FAILURES))
    return _counted(outcomes, over, window)


def _failed(over: str, window: str) -> str:
    # A model that never failed has no series of failures: it counts none.
    outcomes = among("outcome", *(failure.__name__ for failure in FAILURES))
    return f"{_counted(outcomes, over, window)}\nor\n{_answerable(over, window)} * 0"


def _counted(outcomes: str, over: str, window: str) -> str:
    """Of each model. What ended before its model was known is counted where it failed, and not where it went well.

    Of that only our own faults are bad: a question whether a model is ready, or an upload that takes too long, is none.
    """
    of_models = summed(vocabulary.REQUESTS, window, _BY, (outcomes, _KNOWN), over=over)
    return f"({of_models}\nor\n{summed(vocabulary.REQUESTS, window, _BY, _BEFORE_A_MODEL, over=over)})"


def _beyond(name: str, promise: Promise, task: Task | None = None) -> Indicator:
    """The interactive ones that took longer than promised."""
    where = (_INTERACTIVE,)

    def whole(over: str, window: str) -> str:
        return summed(promise.measured_by, window, _BY, where, suffix="_count", over=over)

    def bad(over: str, window: str) -> str:
        return (
            f"{whole(over, window)}\n-\n{bucket(promise.measured_by, promise.limit_s, window, _BY, where, over=over)}"
        )

    return Indicator(name, promise.share, bad, whole, task)


ERRORS = Indicator("errors", AVAILABILITY, _failed, _answerable)
SLOW: Sequence[Indicator] = [_beyond("slow", promise, task) for task, promise in LATENCY.items()]
"""One for each task, all under one name: the label `task` tells them apart."""
SLOW_FIRST_TOKEN = _beyond("ttft_slow", FIRST_TOKEN)
SLOW_TOKENS = _beyond("tpot_slow", TOKEN_PACE)
INDICATORS: Sequence[Indicator] = [ERRORS, *SLOW, SLOW_FIRST_TOKEN, SLOW_TOKENS]


def _recordings() -> Iterator[Recording]:
    for indicator in INDICATORS:
        yield from (indicator.ratio(window) for window in _WINDOWS)
        yield from (indicator.increase(burn.long) for burn in BURNS)


def _alert(subject: str, indicator: Indicator, burn: Burn, said: str, description: str) -> Alert:
    threshold = burn.threshold(indicator.objective)
    return Alert(
        f"Zooserve{subject}BudgetBurns{'Fast' if burn.severity == 'page' else 'Slowly'}",
        (
            Condition(indicator.ratio(burn.long).where(), ">", threshold),
            Condition(indicator.ratio(burn.short).where(), ">", threshold),
            Condition(indicator.increase(burn.long).where(), ">", FEWEST_BAD),
        ),
        burn.hold,
        burn.severity,
        "slo",
        "slo",
        f"{{{{ $value | humanizePercentage }}}} of the {{{{ $labels.class }}}} requests to {{{{ $labels.model }}}} "
        f"{said} within {burn.long}",
        f"{description} Of the last {burn.long}, and still of the last {burn.short}, more than "
        f"{100 * threshold:.4g}% are bad: {burn.factor:g} times what the objective allows.",
    )


def _alerts() -> Iterator[Alert]:
    for burn in BURNS:
        yield _alert(
            "Availability", ERRORS, burn, "failed",
            f"{100 * AVAILABILITY:.4g}% of the requests that could be answered are to be.",
        )  # fmt: skip
        # One alert for all tasks, whose objective is the same: its series bear the task.
        yield _alert(
            "Latency", SLOW[0], burn, "took longer than promised",
            f"{100 * LATENCY_SHARE:.4g}% of the interactive requests are to be answered within {_limits()}.",
        )  # fmt: skip
        yield _alert(
            "FirstToken", SLOW_FIRST_TOKEN, burn, "waited too long for their first token",
            f"{100 * FIRST_TOKEN.share:.4g}% of the interactive chats are to begin within {FIRST_TOKEN.limit_s:g} s.",
        )  # fmt: skip
        yield _alert(
            "TokenPace", SLOW_TOKENS, burn, "got their tokens too slowly",
            f"{100 * TOKEN_PACE.share:.4g}% of the interactive answers are to take at most {TOKEN_PACE.limit_s:g} s "
            "a token.",
        )  # fmt: skip


def _limits() -> str:
    return ", ".join(f"{promise.limit_s:g} s ({task})" for task, promise in LATENCY.items())


RECORDINGS = tuple(_recordings())
ALERTS = tuple(_alerts())
