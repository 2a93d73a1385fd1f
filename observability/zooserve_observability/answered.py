"""Whether a Prometheus answers every expression of the dashboards and rules, with data that is alive.

    python -m zooserve_observability.answered http://127.0.0.1:9090 --minutes 5

An expression is at fault where Prometheus refuses it, where it has no data, where all of it is NaN, and where no series
of it ever changed in the time that was looked at.
"""

import argparse
import json
import math
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from ruamel.yaml import YAML

from zooserve_observability.dashboards.expressions import VARIABLES

__all__ = ["Asked", "Fault", "Prometheus", "Span", "asked_by_dashboards", "asked_by_rules", "faults"]

_WINDOW = "1m"
"""What `$__rate_interval` stands for unless told: four scrapes of those who scrape every 15 s, as Grafana has it."""
_TIMEOUT_S = 30.0
_REQUIRES = re.compile(r"^requires: (\w+)$", re.MULTILINE)
_LABEL_VALUES = re.compile(r"label_values\((?P<series>.+), (?P<label>\w+)\)")
_AND = re.compile(r"\s+and (?!on\b|ignoring\b)")
_THRESHOLD = re.compile(r"\s+(?:[<>]=?|[!=]=)\s+[-+.\de]+$")


@dataclass(frozen=True)
class Asked:
    """One expression, and who asks it."""

    where: str
    expression: str
    requires: str = ""
    """What must be there for it to have data; empty where every platform has it."""
    may_be_constant: bool = False
    """Whether it need not change, as a list of a label's values need not."""


@dataclass(frozen=True)
class Fault:
    """An expression that was not answered as it should be."""

    asked: Asked
    reason: str

    def __str__(self) -> str:
        return f"{self.asked.where}: {self.reason}\n    {self.asked.expression}"


@dataclass(frozen=True)
class Span:
    """The time that is looked at, in seconds since 1970."""

    began: float
    ended: float
    step_s: float = 2.0


def asked_by_dashboards(folder: Path, window: str = _WINDOW) -> list[Asked]:
    """The expressions of every panel and every variable, rates over this window."""
    files = sorted(folder.glob("*.json"))
    return [asked for file in files for asked in _of_dashboard(json.loads(file.read_text()), window)]


def asked_by_rules(folder: Path) -> list[Asked]:
    """What every recording rule computes, and each value that an alert holds against a threshold."""
    yaml = YAML(typ="safe", pure=True)
    return [
        asked
        for file in sorted(folder.glob("*.yml"))
        for group in yaml.load(file.read_text())["groups"]
        for rule in group["rules"]
        for asked in _of_rule(rule)
    ]


def _of_dashboard(dashboard: Mapping[str, Any], window: str) -> Iterator[Asked]:
    title = dashboard["title"]
    for variable in dashboard["templating"]["list"]:
        query = variable["query"] if isinstance(variable["query"], str) else variable["query"]["query"]
        if values := _LABEL_VALUES.fullmatch(query):
            listed = f"count by ({values['label']}) ({_filled(values['series'], window)})"
            yield Asked(f"{title}, variable {variable['name']}", listed, may_be_constant=True)
    for panel in dashboard["panels"]:
        needs = _REQUIRES.search(panel.get("description") or "")
        for target in panel.get("targets") or ():
            yield Asked(f"{title}, {panel['title']}", _filled(target["expr"], window), needs[1] if needs else "")


def _of_rule(rule: Mapping[str, Any]) -> Iterator[Asked]:
    requires = rule.get("labels", {}).get("requires", "")
    if "record" in rule:
        yield Asked(f"rule {rule['record']}", rule["expr"], requires)
        return
    for condition in _AND.split(rule["expr"]):
        yield Asked(f"alert {rule['alert']}", _THRESHOLD.sub("", condition), requires)


def _filled(expression: str, window: str) -> str:
    """As Grafana sends it with everything chosen."""
    chosen = re.sub(rf"\$(?:{'|'.join(VARIABLES)})\b", ".*", expression)
    return chosen.replace("$__rate_interval", window)


class Prometheus:
    """A Prometheus, asked over HTTP."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        """Its base address, without a slash at the end."""

    def range(self, expression: str, span: Span) -> list[dict[str, Any]]:
        """The series of an expression over a time. Raises ValueError with Prometheus' words where it refuses."""
        asked = {"query": expression, "start": span.began, "end": span.ended, "step": span.step_s}
        return list(self._data("/api/v1/query_range", asked)["result"])

    def targets(self) -> dict[tuple[str, str], str]:
        """The health of each target, by its job and address."""
        found = self._data("/api/v1/targets", {"state": "active"})["activeTargets"]
        return {
            (target["labels"]["job"], target["labels"]["instance"]): f"{target['health']}{target['lastError']}"
            for target in found
        }

    def _data(self, path: str, asked: Mapping[str, Any]) -> Any:
        answer = httpx.get(f"{self.url}{path}", params=dict(asked), timeout=_TIMEOUT_S).json()
        if answer["status"] != "success":
            raise ValueError(answer["error"])
        return answer["data"]


def faults(prometheus: Prometheus, asked: Iterable[Asked], span: Span) -> list[Fault]:
    """What is not answered as it should be."""
    found = ((each, _reason(prometheus, each, span)) for each in asked)
    return [Fault(each, reason) for each, reason in found if reason]


def _reason(prometheus: Prometheus, asked: Asked, span: Span) -> str:
    try:
        series = prometheus.range(asked.expression, span)
    except ValueError as exc:
        return f"Prometheus refuses it: {exc}"
    if not series:
        return "no data"
    values = [[float(value) for _, value in each["values"]] for each in series]
    finite = [[value for value in each if math.isfinite(value)] for each in values]
    if not any(finite):
        return "NaN or infinite throughout"
    if not asked.may_be_constant and not any(len(set(each)) > 1 for each in finite):
        return f"never changes: {', '.join(sorted({f'{value:g}' for each in finite for value in each})[:3])}"
    return ""


def main() -> int:
    """The exit code: 1 where an expression of something that every platform has is at fault."""
    parser = argparse.ArgumentParser(prog="zooserve_observability.answered", description=__doc__.partition("\n")[0])
    parser.add_argument("prometheus", help="its base URL")
    parser.add_argument("--minutes", type=float, default=60.0, help="how far to look back (%(default)s)")
    parser.add_argument("--window", default=_WINDOW, help="of rates: at least four scrapes (%(default)s)")
    parser.add_argument("--dashboards", type=Path, default=Path("observability/grafana/dashboards"))
    parser.add_argument("--rules", type=Path, default=Path("observability/prometheus/rules"))
    given = parser.parse_args()
    everything = [*asked_by_dashboards(given.dashboards, given.window), *asked_by_rules(given.rules)]
    asked = [each for each in everything if not each.requires]
    now = time.time()
    span = Span(now - given.minutes * 60, now, max(2.0, given.minutes / 5))
    found = faults(Prometheus(given.prometheus), asked, span)
    sys.stdout.write("".join(f"{fault}\n" for fault in found) + f"{len(found)} of {len(asked)} are at fault\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
