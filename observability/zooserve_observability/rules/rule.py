"""What a rule is: a recording gives an expression a name, an alert compares recordings and series with thresholds."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from zooserve_observability.foreign import Requires
from zooserve_observability.rules.promql import Value, selector
from zooserve_observability.rules.slo import Severity

__all__ = ["Alert", "Condition", "Dashboard", "Recording"]

Dashboard = Literal["overview", "chat", "zoo", "releases", "capacity", "slo"]


@dataclass(frozen=True)
class Recording:
    """An expression that Prometheus evaluates again and again and keeps under a name of its own."""

    record: str
    expr: str
    by: tuple[str, ...]
    """The labels that its series keep."""
    tags: tuple[tuple[str, str], ...] = ()
    """The labels that the rule adds to them."""

    @property
    def labels(self) -> frozenset[str]:
        """All that its series have."""
        return frozenset((*self.by, *(label for label, _ in self.tags)))

    def where(self, *conditions: str) -> Value:
        """Its series that match."""
        return Value(selector(self.record, conditions, self.labels), self.labels)


@dataclass(frozen=True)
class Condition:
    """A value on one side, a number on the other."""

    value: Value
    op: Literal[">", "<", ">=", "<=", "=="]
    threshold: float

    def __str__(self) -> str:
        return f"{self.value.text} {self.op} {self.threshold:.10g}"


@dataclass(frozen=True)
class Alert:
    """Conditions that have to hold together for a while, and what is said then. Its runbook entry bears its name."""

    name: str
    conditions: tuple[Condition, ...]
    hold: str
    """How long, as Prometheus writes durations; `0m` for at once."""
    severity: Severity
    component: str
    dashboard: Dashboard
    summary: str
    """One line; may use {{ $labels }} and {{ $value }}, which is the first condition's."""
    description: str
    requires: Requires = ""

    def __post_init__(self) -> None:
        """`and` keeps only series with equal labels: conditions over unequal ones would never hold."""
        if len({condition.value.labels for condition in self.conditions}) != 1:
            raise ValueError(
                f"{self.name}: its conditions are over series with unequal labels, which `and` never joins"
            )

    @property
    def values(self) -> tuple[str, ...]:
        """What each condition looks at; every one can be asked for alone."""
        return tuple(condition.value.text for condition in self.conditions)

    @property
    def expr(self) -> str:
        """The conditions, joined."""
        return "\nand ".join(str(condition) for condition in self.conditions)

    @property
    def tags(self) -> Iterator[tuple[str, str]]:
        """The labels that the alert adds to those of its series."""
        yield from (("severity", self.severity), ("component", self.component))
        if self.requires:
            yield ("requires", self.requires)

    @property
    def annotations(self) -> Iterator[tuple[str, str]]:
        """What whoever is told reads."""
        yield from (("summary", self.summary), ("description", self.description))
        yield ("runbook_url", f"docs/runbook.md#{self.name.lower()}")
        yield ("dashboard", f"/d/zooserve-{self.dashboard}")
