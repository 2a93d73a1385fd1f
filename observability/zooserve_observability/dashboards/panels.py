"""What a dashboard is made of: rows of panels, each with its unit, its queries, and when to worry."""

from dataclasses import dataclass
from typing import Literal

from zooserve_observability.foreign import Requires

__all__ = ["Dashboard", "Look", "Panel", "Query", "Row", "State", "Traces", "Unit"]

Unit = Literal["short", "reqps", "s", "ms", "µs", "bytes", "percentunit", "none", "cps"]
"""Grafana's names: reqps is requests a second, cps counts a second (tokens, spans, rows)."""
Look = Literal["lines", "stacked", "states", "number", "table"]
"""lines and stacked over time, states as coloured bands over time, number and table as of now."""
Traces = Literal["", "all", "failed", "slow", "stage"]
"""Which traces a series of the panel leads to: of a model's requests, or those that took long in a Triton model."""
_COLUMNS = 24


@dataclass(frozen=True)
class Query:
    """One expression and what its series are called; the legend names labels as Grafana does: {{model}}."""

    expression: str
    legend: str


@dataclass(frozen=True)
class State:
    """What a value stands for."""

    value: int
    text: str
    colour: Literal["green", "yellow", "red"]


@dataclass(frozen=True)
class Panel:
    """One picture, or one number."""

    title: str
    watch: str
    """What to look at and when to worry, in a sentence or two."""
    unit: Unit
    queries: tuple[Query, ...]
    look: Look = "lines"
    width: int = 8
    """Of 24 columns."""
    requires: Requires = ""
    """What an embedded platform on a CPU lacks, so that nothing is drawn there."""
    traces: Traces = ""
    most: float | None = None
    """The upper end of the scale, where there is one."""
    least: float | None = 0
    """The lower end."""
    worry_at: float | None = None
    """Where the line is drawn above which (or, for a share of what is well, below which) somebody should look."""
    states: tuple[State, ...] = ()
    exemplars: bool = False
    """Whether single requests are drawn as points, each of which leads to its trace."""

    def __post_init__(self) -> None:
        if not 0 < self.width <= _COLUMNS:
            raise ValueError(f"{self.title}: a panel is 1 to {_COLUMNS} columns wide, not {self.width}")

    @property
    def description(self) -> str:
        """What Grafana shows of it: its last line says what the panel requires."""
        return f"{self.watch}\n\nrequires: {self.requires}" if self.requires else self.watch


@dataclass(frozen=True)
class Row:
    """Panels below one heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Dashboard:
    """One page."""

    name: str
    title: str
    summary: str
    rows: tuple[Row, ...]
    models: str = ""
    """Which models can be chosen: matchers of zooserve_model_info; empty for all."""

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All of them, from the top left to the bottom right."""
        return tuple(panel for row in self.rows for panel in row.panels)

    @property
    def uid(self) -> str:
        """Its address in Grafana: /d/zooserve-name."""
        return f"zooserve-{self.name}"

    @property
    def file_name(self) -> str:
        """Where it is committed."""
        return f"{self.name}.json"
