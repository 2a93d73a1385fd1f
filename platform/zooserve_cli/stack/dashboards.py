"""Rules of Grafana: data sources that dashboards name are provisioned, and dashboards are mounted where it looks."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from zooserve_cli.stack import grafana
from zooserve_cli.stack.environment import told, told_nodes
from zooserve_cli.stack.invocation import image_program
from zooserve_cli.stack.listening import tree_of
from zooserve_cli.stack.service import Service
from zooserve_cli.stack.stack import Stack
from zooserve_cli.stack.tree import Node
from zooserve_ensembles.checking.findings import Finding, Place, Rule, Severity
from zooserve_ensembles.checking.reading import did_you_mean

__all__ = ["RULES", "dashboard_findings"]

SOURCE = Rule(
    "unknown-data-source", Severity.ERROR, "A dashboard asks for a type of data source of which none is provisioned"
)
FOLDER = Rule(
    "dashboards-not-mounted",
    Severity.ERROR,
    "Grafana is told a folder of dashboards that its container does not have, or has empty",
)
DASHBOARD = Rule("dashboard-unreadable", Severity.ERROR, "A dashboard is no JSON, or has the uid of another")

RULES = (SOURCE, FOLDER, DASHBOARD)

_PROVISIONING = "/etc/grafana/provisioning"


def dashboard_findings(stack: Stack) -> Iterator[Finding]:
    """Every Grafana of the profile, with the files of the host that it is provisioned with."""
    for service in stack.services.values():
        program = image_program(stack, service)
        if program is None or program.program != "grafana":
            continue
        provisioning = told(stack, service).get("GF_PATHS_PROVISIONING", _PROVISIONING)
        sources = list(_sources(stack, service, provisioning))
        known = {source[key].text for source in sources for key in ("uid", "name")} - {""}
        kinds = {source["type"].text for source in sources}
        providers = list(_provided(stack, service, f"{provisioning}/dashboards", "providers"))
        if not providers and any(_json_files(stack.path(mount.source)) for mount in service.mounts if mount.source):
            yield FOLDER.at(service.place, f"{service.name} sees dashboards that nothing in {provisioning} provides")
        for provider in providers:
            yield from _dashboards(stack, service, provider, known, kinds)
        for source in sources:
            yield from _led_elsewhere(stack, service, source)


def _led_elsewhere(stack: Stack, service: Service, source: Node) -> Iterator[Finding]:
    """A data source whose address leads to a recorded program of another kind."""
    kind, url = source["type"].text, source["url"]
    if kind not in stack.programs:
        return
    environment = told_nodes(stack, service)
    name = re.fullmatch(r"\$\{?(\w+)\}?", url.text)
    node = environment.get(name[1], url) if name else url
    host = re.match(r"https?://([\w.-]+)", node.text)
    for other, _ in stack.reached(service, host[1]) if host else ():
        program = image_program(stack, other)
        if program is not None and program.program != kind:
            yield grafana.SOURCE.at(
                node.place, f"{source['name'].text} is of the type {kind}, and leads to {other.name}, which is none"
            )


def _provided(stack: Stack, service: Service, folder: str, key: str) -> Iterator[Node]:
    host = stack.on_host(service, folder)
    try:
        files = sorted(host.glob("*.y*ml")) if host is not None and host.is_dir() else []
    except (OSError, ValueError):
        files = []
    for file in files:
        tree = tree_of(file)
        if tree is not None:
            yield from tree[key].elements


def _sources(stack: Stack, service: Service, provisioning: str) -> Iterator[Node]:
    yield from _provided(stack, service, f"{provisioning}/datasources", "datasources")


def _dashboards(stack: Stack, service: Service, provider: Node, known: set[str], kinds: set[str]) -> Iterator[Finding]:
    path = provider["options"]["path"]
    host = stack.on_host(service, path.text) if path.text else None
    files = _json_files(host) if host is not None else []
    if not files:
        yield FOLDER.at(path.place, f"{service.name} has no dashboards in {path.text or 'no folder'}: mount them there")
    uids: dict[str, Path] = {}
    for file in files:
        try:
            text = file.read_text(encoding="utf-8")
            content = json.loads(text)
        except (OSError, ValueError, RecursionError) as exc:
            yield DASHBOARD.at(Place(file, getattr(exc, "lineno", 0)), f"it is no JSON: {exc}")
            continue
        uid = content.get("uid") if isinstance(content, dict) else None
        if isinstance(uid, str) and uid in uids:
            yield DASHBOARD.at(Place(file, _line(text, uid)), f"the uid {uid} is {uids[uid].name}'s already")
        elif isinstance(uid, str):
            uids[uid] = file
        yield from grafana.dashboard_findings(text, file, known)
        for line, kind in _wanted(content, text, kinds):
            near = did_you_mean(kind, sorted(kinds))
            yield SOURCE.at(Place(file, line), f"no data source of the type {kind} is provisioned. {near}".strip())


def _json_files(folder: Path) -> list[Path]:
    try:
        return sorted(folder.rglob("*.json")) if folder.is_dir() else []
    except (OSError, ValueError):
        return []


def _wanted(content: Any, text: str, kinds: set[str]) -> Iterator[tuple[int, str]]:
    """Kinds of data sources that a dashboard lets its reader choose of, and of which none is provisioned."""
    templating = content.get("templating") if isinstance(content, dict) else None
    variables = templating.get("list") if isinstance(templating, dict) else None
    for variable in variables if isinstance(variables, list) else ():
        if isinstance(variable, dict) and variable.get("type") == "datasource":
            kind = variable.get("query")
            if isinstance(kind, str) and kind not in kinds:
                offset = max(text.find(f'"query": {json.dumps(kind)}'), 0)
                yield text.count("\n", 0, offset) + 1, kind


def _line(text: str, name: str) -> int:
    """Where a name is written as a value of its own."""
    offset = text.find(json.dumps(name))
    return text.count("\n", 0, offset) + 1 if offset >= 0 else 1
