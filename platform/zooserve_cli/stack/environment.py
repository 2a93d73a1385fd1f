"""Rules of what containers are told by their environment: our settings, and the variables of recorded programs."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from zooserve_cli.stack.env_file import read_env
from zooserve_cli.stack.house import PREFIX, setting_faults, setting_names
from zooserve_cli.stack.invocation import image_program, invocations
from zooserve_cli.stack.recorded import Program
from zooserve_cli.stack.service import Service
from zooserve_cli.stack.stack import Stack
from zooserve_cli.stack.tree import Node
from zooserve_ensembles.checking.findings import Finding, Rule, Severity
from zooserve_ensembles.checking.reading import did_you_mean

__all__ = ["RULES", "environment_findings", "told"]

UNKNOWN = Rule("unknown-setting", Severity.ERROR, "A ZOOSERVE_ variable is no setting: it would be ignored")
BAD = Rule("bad-setting", Severity.ERROR, "A setting has a value that it does not take")
FOREIGN = Rule("unknown-environment", Severity.ERROR, "A recorded program reads no such variable")

RULES = (UNKNOWN, BAD, FOREIGN)


_LIBRARIES = (
    "GF_AUTH_ANONYMOUS_ENABLED",
    "GF_AUTH_ANONYMOUS_ORG_ROLE",
    "GF_AUTH_BASIC_ENABLED",
    "GF_AUTH_DISABLE_LOGIN_FORM",
    "GF_LOG_LEVEL",
    "GF_PLUGINS_PREINSTALL",
    "GF_PLUGINS_PREINSTALL_DISABLED",
    "HF_ENDPOINT",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_HUB_DISABLE_TELEMETRY",
    "HF_HUB_OFFLINE",
    "HF_TOKEN",
    "HF_TOKEN_PATH",
    "QDRANT_INIT_FILE_PATH",
    "RAY_SERVE_ENABLE_HA_PROXY",
    "RAY_SERVE_THROUGHPUT_OPTIMIZED",
    "RAY_USAGE_STATS_ENABLED",
    "RAY_worker_niceness",
)
"""Some of what programs read beside the names that are recorded whole: only a slip of one of these is told."""
_ALL_BUT = 0.9
_EXPORT = re.compile(r"\bexport\s+([A-Za-z_]\w*)=")


def environment_findings(stack: Stack) -> Iterator[Finding]:
    """Every variable of every container against what reads it."""
    for service in stack.services.values():
        environment = told_nodes(stack, service)
        yield from _settings(environment)
        programs = _programs(stack, service)
        yield from _slips(environment, programs)
        for program in programs:
            yield from _foreign({**environment, **_exported(service)}, program)


def told(stack: Stack, service: Service) -> dict[str, str]:
    """What a container is told by name."""
    return {name: node.text for name, node in told_nodes(stack, service).items()}


def told_nodes(stack: Stack, service: Service) -> dict[str, Node]:
    """The same with lines: files of `env_file` first, `environment` over them; no value means the env file's own."""
    found: dict[str, Node] = {}
    files = service.node["env_file"]
    for part in files.elements or (files,):
        source = part["path"].text or part.text
        env = read_env(stack.path(source)) if source else None
        for variable in env.variables.values() if env else ():
            found[variable.name] = Node(variable.value, variable.place, variable.place)
    for name, node in service.environment.items():
        if node.is_there:
            found[name] = node
        elif name in stack.env.values:
            found[name] = Node(stack.env.values[name], node.key_place, node.key_place)
    return found


def _settings(environment: Mapping[str, Node]) -> Iterator[Finding]:
    ours = {name: node for name, node in environment.items() if name.upper().startswith(PREFIX)}
    known = setting_names()
    groups = {name.partition("__")[0] for name in known}
    for name, node in ours.items():
        if name.upper() not in known and name.upper() not in groups:
            near = did_you_mean(name.upper(), known)
            yield UNKNOWN.at(node.key_place, f"{name} is no setting. {near}".strip())
    for name, why in setting_faults({name: node.text for name, node in ours.items()}):
        if name in ours:
            yield BAD.at(ours[name].place, f"{name} cannot be {ours[name].text!r}: {why}")


def _exported(service: Service) -> dict[str, Node]:
    """What a script of the command line exports, by name."""
    found: dict[str, Node] = {}
    for word in (*service.entrypoint, *service.command):
        for export in _EXPORT.finditer(word.text):
            place = word.line_of(export.start())
            found[export[1]] = Node(None, place, place)
    return found


def _slips(environment: Mapping[str, Node], programs: list[Program]) -> Iterator[Finding]:
    """Names that are all but one that somebody reads, a slip in the prefix among them."""
    prefixes = (PREFIX, *(program.env.prefix for program in programs if program.env))
    known = [*_LIBRARIES, *setting_names()]
    known += [name for program in programs if program.env for name in program.env.names if "*" not in name]
    for name, node in environment.items():
        if name.removesuffix("__FILE") in known or (name.upper().startswith(prefixes) and not name.startswith("GF_")):
            continue
        if near := get_close_matches(name, known, 1, _ALL_BUT):
            yield FOREIGN.at(node.key_place, f"nothing is known to read {name}. Did you mean {near[0]}?")


def _programs(stack: Stack, service: Service) -> list[Program]:
    names = [one.program for one in invocations(stack, service) if one.program in stack.programs]
    image = image_program(stack, service)
    found = {name: stack.programs[name] for name in names}
    return list({**found, **({image.program: image} if image else {})}.values())


def _foreign(environment: Mapping[str, Node], program: Program) -> Iterator[Finding]:
    known = program.env
    if known is None:
        return
    for name, node in environment.items():
        if name.startswith(known.prefix) and not known.knows(name):
            near = did_you_mean(name, [one for one in known.names if "*" not in one])
            yield FOREIGN.at(node.key_place, f"{program.program} {program.release} reads no {name}. {near}".strip())
