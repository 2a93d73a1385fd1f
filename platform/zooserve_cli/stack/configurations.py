"""The YAML configurations that a service sees: mounted files and folders, with its own variables replaced."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from zooserve_cli.stack.environment import told
from zooserve_cli.stack.invocation import image_program, invocations
from zooserve_cli.stack.listening import configured_path, tree_of
from zooserve_cli.stack.service import Service
from zooserve_cli.stack.stack import Stack
from zooserve_cli.stack.tree import Node, TreeError, read_tree
from zooserve_ensembles.checking.findings import Finding, Place, Rule, Severity
from zooserve_ensembles.checking.reading import did_you_mean

__all__ = ["RULES", "configuration_findings", "configurations"]

UNREADABLE = Rule("config-unreadable", Severity.ERROR, "A mounted configuration cannot be read as YAML")
UNSEEN = Rule(
    "config-not-mounted", Severity.ERROR, "A program is told a configuration file that its container does not have"
)
VARIABLE = Rule("config-variable", Severity.ERROR, "A configuration reads a variable that its container is not given")

RULES = (UNREADABLE, UNSEEN, VARIABLE)

_SUFFIXES = (".yml", ".yaml")
_SYSTEM_DEPTH = 2
_MOST_FILES = 50
_BESIDE = {"rules", "tests"}
"""Folders of alert rules and of tests for them: promtool reads those."""
_VARIABLE = re.compile(r"(?<!\$)\$\{(?:env:)?([A-Za-z_]\w*)(?::-?[^}]*)?\}")
_ALL_BUT = 0.9
"""How near a variable that has a default is to one that is given, to be a slip."""
_EXPANDS = {"grafana", "tempo", "otelcol", "collector", "opentelemetry-collector", "otelcol-contrib"}


def configurations(stack: Stack, service: Service) -> Iterator[Node]:
    """Every YAML file below the service's mounts that is a configuration: not alert rules, not a model repository."""
    environment = told(stack, service)
    for file in _files(stack, service):
        tree = tree_of(file)
        if tree is not None and tree.is_mapping and "groups" not in tree.entries:
            yield _expanded(tree, environment)


def configuration_findings(stack: Stack) -> Iterator[Finding]:
    """Whether each configuration can be read, is where its program looks, and has only keys that the program knows."""
    for service in stack.services.values():
        for file in _files(stack, service):
            if tree_of(file) is not None:
                continue
            try:
                read_tree(file)
            except TreeError as exc:
                yield UNREADABLE.at(Place(file, exc.line), str(exc))
        yield from _own(stack, service)


def _own(stack: Stack, service: Service) -> Iterator[Finding]:
    calls = [call for call in invocations(stack, service) if call.program in stack.programs]
    for call in calls:
        program = stack.programs[call.program]
        path = configured_path(program, call)
        given = call.flag(program.config.flag) if program.config and program.config.flag else None
        if given is not None and path.startswith("/") and not _is_there(stack, service, path):
            yield UNSEEN.at(given.place, f"{service.name} has no {path}: mount it there")
    image = image_program(stack, service)
    if any(name in _EXPANDS for name in [*(call.program for call in calls), *([image.program] if image else [])]):
        environment = told(stack, service)
        for file in _files(stack, service):
            yield from _variables(tree_of(file), environment, service)


def _is_there(stack: Stack, service: Service, path: str) -> bool:
    if any(path == grant.target for grant in (*service.configs, *service.secrets)):
        return True
    mount = service.at_path(path)
    if mount is None:
        return False
    host = stack.on_host(service, path)
    return mount.kind != "bind" or (host is not None and host.exists())


def _variables(tree: Node | None, environment: Mapping[str, str], service: Service) -> Iterator[Finding]:
    for _, node in tree.walk() if tree is not None else ():
        if not isinstance(node.value, str):
            continue
        for found in _VARIABLE.finditer(node.value):
            if found[1] in environment:
                continue
            near = did_you_mean(found[1], sorted(environment))
            if ":-" not in found[0] or get_close_matches(found[1], environment, 1, _ALL_BUT):
                yield VARIABLE.at(
                    node.line_of(found.start()),
                    f"{service.name} is not given {found[1]}: set it in its environment. {near}".strip(),
                )


def _files(stack: Stack, service: Service) -> list[Path]:
    """YAML files of the host that the service sees, a folder's own and those below it."""
    found: list[Path] = []
    sources = [stack.path(mount.source) for mount in service.mounts if mount.kind == "bind" and mount.source]
    named = (stack.root["configs"][grant.source]["file"].text for grant in service.configs)
    sources += [stack.path(file) for file in named if file]
    for source in sources:
        try:
            if source.is_file() and source.suffix in _SUFFIXES:
                found.append(source)
            elif (
                _holds_configurations(source)
                and not any(source.glob("*/*/config.pbtxt"))
                and not any(source.glob("*/config.pbtxt"))
            ):
                found += [file for file in sorted(source.rglob("*.y*ml"))[:_MOST_FILES] if file.suffix in _SUFFIXES]
        except (OSError, ValueError):
            continue
    return list(dict.fromkeys(file for file in found if not _BESIDE & set(file.parts[-3:-1])))


def _expanded(node: Node, environment: Mapping[str, str]) -> Node:
    if node.is_mapping:
        return replace(node, value={key: _expanded(inner, environment) for key, inner in node.entries.items()})
    if node.is_list:
        return replace(node, value=tuple(_expanded(inner, environment) for inner in node.elements))
    if not isinstance(node.value, str) or "${" not in node.value:
        return node
    if _VARIABLE.fullmatch(node.value):  # what it is set to is looked at in the environment
        return replace(node, value=None)
    return replace(node, value=_VARIABLE.sub(lambda found: environment.get(found[1], found[0]), node.value))


def _holds_configurations(folder: Path) -> bool:
    """Not one of the system's own, as `/` is, which is mounted to be watched: it would be searched whole."""
    return folder.is_dir() and len(folder.resolve().parts) > _SYSTEM_DEPTH
