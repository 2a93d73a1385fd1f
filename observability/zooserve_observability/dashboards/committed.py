"""The committed dashboards, read back as whoever asks Prometheus needs them: what is drawn, by which expressions.

Reads JSON only: no part of Grafana's types is needed for it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Choice", "Drawn", "Target", "choices", "filled", "read"]

_REQUIRES = re.compile(r"(?:^|\n)requires: (\w+)$")
_VARIABLE = re.compile(r"\$([A-Za-z_]\w*)")
_LABEL_VALUES = re.compile(r"label_values\((?P<series>.+), (?P<label>\w+)\)")
_NONE: Mapping[str, str] = {}
_SPANS = ("__rate_interval", "__interval", "__range")


@dataclass(frozen=True)
class Target:
    """One query of a panel, with Grafana's variables in it."""

    expression: str
    legend: str
    instant: bool


@dataclass(frozen=True)
class Choice:
    """A variable of which everything is chosen, where everything is not every series there is."""

    name: str
    series: str
    label: str


@dataclass(frozen=True)
class Drawn:
    """One panel of a dashboard."""

    dashboard: str
    """The dashboard's uid."""
    page: str
    """Its title."""
    row: str
    title: str
    kind: str
    """Grafana's name of the kind of picture."""
    description: str
    unit: str
    stacked: bool
    most: float | None
    mappings: dict[str, str]
    """What values stand for."""
    place: tuple[int, int, int, int]
    """x, y, width and height on the grid."""
    targets: tuple[Target, ...]

    @property
    def requires(self) -> str:
        """What an embedded platform lacks for it; empty where nothing."""
        found = _REQUIRES.search(self.description)
        return found[1] if found else ""


def read(folder: Path) -> tuple[Drawn, ...]:
    """Every panel of every dashboard in a folder."""
    files = sorted(folder.glob("*.json"))
    if not files:
        raise FileNotFoundError(f"no dashboards in {folder}: `make dashboards` writes them")
    return tuple(drawn for file in files for drawn in _panels(json.loads(file.read_text())))


def choices(folder: Path, uid: str) -> tuple[Choice, ...]:
    """The variables of a dashboard whose values have to be asked for."""
    (document,) = (found for file in folder.glob("*.json") if (found := json.loads(file.read_text()))["uid"] == uid)
    return tuple(
        Choice(variable["name"], found["series"], found["label"])
        for variable in document["templating"]["list"]
        if variable["type"] == "query" and "allValue" not in variable
        if (found := _LABEL_VALUES.fullmatch(variable["query"]["query"]))
    )


def filled(expression: str, window: str, chosen: Mapping[str, str] = _NONE) -> str:
    """The expression for the chosen values of the variables, or for all of them, its rates over one window."""
    return _VARIABLE.sub(lambda found: window if found[1] in _SPANS else chosen.get(found[1], ".*"), expression)


def _panels(document: dict[str, Any]) -> Iterator[Drawn]:
    row = ""
    for panel in document["panels"]:
        if panel["type"] == "row":
            row = panel["title"]
        else:
            yield _panel(document, row, panel)


def _panel(document: dict[str, Any], row: str, panel: dict[str, Any]) -> Drawn:
    field = panel["fieldConfig"]["defaults"]
    place = panel["gridPos"]
    return Drawn(
        dashboard=document["uid"],
        page=document["title"],
        row=row,
        title=panel["title"],
        kind=panel["type"],
        description=panel["description"],
        unit=field["unit"],
        stacked=field.get("custom", {}).get("stacking", {}).get("mode") == "normal",
        most=field.get("max"),
        mappings={
            value: result["text"]
            for mapping in field.get("mappings", [])
            for value, result in mapping["options"].items()
        },
        place=(place["x"], place["y"], place["w"], place["h"]),
        targets=tuple(Target(target["expr"], target["legendFormat"], target["instant"]) for target in panel["targets"]),
    )
