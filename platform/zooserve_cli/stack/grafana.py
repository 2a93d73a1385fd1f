"""Grafana's provisioning files and dashboards: keys as recorded, data sources that are there for whoever names them."""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ruamel.yaml import YAML

from zooserve_cli.stack import keys
from zooserve_cli.stack.keys import key_findings
from zooserve_cli.stack.tree import Node, TreeError, parse_tree
from zooserve_ensembles.checking.findings import Finding, Place, Rule, Severity
from zooserve_ensembles.checking.reading import did_you_mean

__all__ = ["RULES", "SOURCE", "dashboard_findings", "datasource_uids", "provisioning_findings", "record"]

UNREADABLE = Rule("grafana-unreadable", Severity.ERROR, "A provisioning file or a dashboard cannot be read")
SOURCE = Rule(
    "grafana-datasource",
    Severity.ERROR,
    "Somebody names a data source that is not provisioned, two are one, or one leads to another program",
)
INTERPOLATED = Rule(
    "grafana-interpolation", Severity.ERROR, "Grafana would put a variable of its environment in for a `$`"
)

RULES = (UNREADABLE, SOURCE, INTERPOLATED, *keys.RULES)

_OF_GRAFANA = ("-- Grafana --", "-- Mixed --", "-- Dashboard --", "grafana")
"""Data sources that every Grafana has."""
_REFERENCE = "datasourceUid"
_DOLLARS = re.compile(r"\$\$|\$\{(\w+)\}|\$(__\w+|\w+)")


@cache  # part of the package: it does not change while a process runs
def record() -> Mapping[str, Any]:
    """What was recorded of Grafana, as it is written."""
    text = files("zooserve_cli.stack").joinpath("recorded/grafana.yaml").read_text(encoding="utf-8")
    return dict(YAML(typ="safe", pure=True).load(text))


def provisioning_findings(text: str, file: Path) -> Iterator[Finding]:
    """What of a provisioning file Grafana would refuse, or pass over without a word."""
    try:
        root = parse_tree(text, file)
    except TreeError as exc:
        yield UNREADABLE.at(Place(file, exc.line), str(exc))
        return
    if root["apiVersion"].text != "1":
        yield UNREADABLE.at(root["apiVersion"].place, "apiVersion is 1: other forms are read with other names")
    if root["providers"].is_there:
        yield from key_findings(root, record()["dashboards"], "the provider file")
        return
    yield from key_findings(root, record()["datasources"], "the data source file")
    yield from _sources(root)
    yield from _dollars(root)


def datasource_uids(text: str, file: Path) -> frozenset[str]:
    """The uids that a file of data sources provisions. Raises TreeError where it cannot be read."""
    root = parse_tree(text, file)
    return frozenset(source["uid"].text for source in root["datasources"].elements if source["uid"].text)


def dashboard_findings(text: str, file: Path, uids: Collection[str]) -> Iterator[Finding]:
    """What in a dashboard names a data source that is not among these."""
    try:
        document = json.loads(text)
    except ValueError as exc:
        yield UNREADABLE.at(Place(file, getattr(exc, "lineno", 0)), f"it is no JSON: {exc}")
        return
    for uid in dict.fromkeys(_named(document)):
        if uid not in uids and uid not in _OF_GRAFANA and not uid.startswith("$"):
            line = _line_of(text, uid)
            yield SOURCE.at(
                Place(file, line),
                f"no data source with the uid {uid} is provisioned. {did_you_mean(uid, list(uids))}".strip(),
            )


def _sources(root: Node) -> Iterator[Finding]:
    elements = root["datasources"].elements
    uids = [source["uid"].text for source in elements]
    names = [source["name"].text for source in elements]
    if sum(source["isDefault"].is_true for source in elements) > 1:
        yield SOURCE.at(
            root["datasources"].key_place, "more than one data source is the default: Grafana does not start"
        )
    for source in elements:
        kind = source["type"].text
        if not source["url"].text:
            yield SOURCE.at(source.place, f"{source['name'].text or 'a data source'} has no url: say where it is asked")
        for key, taken in (("uid", uids), ("name", names)):
            if not source[key].text or taken.count(source[key].text) > 1:
                yield SOURCE.at(source.place, f"each data source needs a {key} of its own")
        if kind not in record()["kinds"]:
            hint = did_you_mean(kind, list(record()["kinds"]))
            yield SOURCE.at(
                source["type"].place, f"nothing was recorded of data sources of type {kind}. {hint}".strip()
            )
        else:
            yield from key_findings(source["jsonData"], record()["kinds"][kind], f"jsonData of {source['name'].text}")
        for path, node in source["jsonData"].walk():
            if path[-1:] == (_REFERENCE,) and node.text not in uids:
                yield SOURCE.at(
                    node.place,
                    f"{node.text} is the uid of no data source here. {did_you_mean(node.text, uids)}".strip(),
                )


def _dollars(root: Node) -> Iterator[Finding]:
    """`$__tags` and its like are Grafana's own, and need a second `$` in a provisioning file."""
    for _, node in root.walk():
        for found in _DOLLARS.finditer(node.text if isinstance(node.value, str) else ""):
            if found[2]:
                yield INTERPOLATED.at(
                    node.line_of(found.start()), f"write $${found[2]}, or ${{{found[2]}}} for a variable"
                )


def _named(part: Any) -> Iterator[str]:
    """Every uid of a data source in a dashboard: of panels, queries, variables, and links to Explore."""
    if isinstance(part, list):
        for inner in part:
            yield from _named(inner)
    if not isinstance(part, dict):
        return
    source = part.get("datasource")
    if isinstance(source, dict) and isinstance(source.get("uid"), str):
        yield source["uid"]
    elif isinstance(source, str):
        yield source
    if isinstance(url := part.get("url"), str) and "/explore?" in url:
        yield from _explored(url)
    for inner in part.values():
        yield from _named(inner)


def _explored(url: str) -> Iterator[str]:
    for panes in parse_qs(urlsplit(url).query).get("panes", ()):
        try:
            yield from _named(json.loads(panes))
        except ValueError:
            continue  # a link of another form


def _line_of(text: str, uid: str) -> int:
    lines = text.splitlines()
    return next((number for number, line in enumerate(lines, start=1) if json.dumps(uid) in line), 0)
