"""Rules of paths in a container: what our settings and anybody's words name there is mounted, or given as a secret."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import PurePosixPath

from zooserve_cli.stack.configurations import configurations
from zooserve_cli.stack.environment import told_nodes
from zooserve_cli.stack.invocation import OURS, Invocation, invocations
from zooserve_cli.stack.service import Service
from zooserve_cli.stack.stack import Stack
from zooserve_cli.stack.tree import Node
from zooserve_ensembles.checking.findings import Finding, Rule, Severity
from zooserve_ensembles.checking.reading import did_you_mean

__all__ = ["RULES", "grant_findings"]

SECRET = Rule("secret-not-granted", Severity.ERROR, "A container is told of a secret that its service is not given")
UNMADE = Rule("secret-unmade", Severity.ERROR, "platform/deploy/secrets.sh, where it is there, makes no such secret")
PATH = Rule("setting-not-mounted", Severity.ERROR, "A setting names a file or folder that the container does not have")
UNREAD = Rule(
    "grant-unread", Severity.ERROR, "A known program is given a secret or a catalogue that nothing tells it of"
)

RULES = (SECRET, UNMADE, PATH, UNREAD)

_FOLDER = re.compile(r"/run/secrets/([A-Za-z0-9_.\-]+)")
_PATHS = ("ZOOSERVE_CATALOGUE", "ZOOSERVE_WEIGHTS_LOCK", "ZOOSERVE_REPOSITORY")
_SCRIPT = "platform/deploy/secrets.sh"
_ALL_BUT = 0.9
_READS: dict[str, tuple[str, tuple[tuple[str, ...], ...]]] = {
    "zoo.yaml": ("ZOOSERVE_CATALOGUE", ()),
    "weights.lock": ("ZOOSERVE_WEIGHTS_LOCK", (("fetch",),)),
}
"""Files that our commands look for beside themselves unless a setting says where; which commands, if not all."""


def grant_findings(stack: Stack) -> Iterator[Finding]:
    """Every path that a container is told, against what it is given."""
    for service in stack.services.values():
        yield from _secrets(stack, service)
        yield from _files(stack, service)
        calls = invocations(stack, service)
        if calls:
            yield from _unread(stack, service)
        for call in calls:
            if call.program == OURS:
                yield from _settings(stack, service)
                yield from _untold(stack, service, call)
    yield from _unmade(stack)


def _secrets(stack: Stack, service: Service) -> Iterator[Finding]:
    given = sorted(grant.target for grant in service.secrets)
    for node in _texts(stack, service):
        for found in _FOLDER.finditer(node.text):
            path = found[0].rstrip(".")
            if path not in given and service.at_path(path) is None:
                near = did_you_mean(path, given)
                yield SECRET.at(
                    node.line_of(found.start()), f"{service.name} has no {path}: list it under secrets. {near}".strip()
                )


def _texts(stack: Stack, service: Service) -> Iterator[Node]:
    yield from told_nodes(stack, service).values()
    for word in (*service.entrypoint, *service.command, *service.health_test):
        yield Node(word.text, word.place, word.place, word.is_block)
    for tree in configurations(stack, service):
        yield from (node for _, node in tree.walk() if isinstance(node.value, str))


def _settings(stack: Stack, service: Service) -> Iterator[Finding]:
    environment = told_nodes(stack, service)
    given = {grant.target for grant in (*service.configs, *service.secrets)}
    for name in _PATHS:
        node = environment.get(name)
        if node is None or not node.text.startswith("/") or node.text in given:
            continue
        host = stack.on_host(service, node.text)
        if service.at_path(node.text) is None or (host is not None and not host.exists()):
            near = did_you_mean(node.text, sorted(given))
            yield PATH.at(node.place, f"{service.name} has no {node.text}: mount it there. {near}".strip())


def _files(stack: Stack, service: Service) -> Iterator[Finding]:
    """Whole values that are paths: all but that of a file that is given, or of none in a folder of the host."""
    given = sorted(grant.target for grant in (*service.secrets, *service.configs))
    for name, node in told_nodes(stack, service).items():
        path = node.text
        if not path.startswith("/") or path in given or name in _PATHS:
            continue
        mount, host = service.at_path(path), stack.on_host(service, path)
        if mount is not None and mount.is_read_only and host is not None and not host.exists():
            yield PATH.at(node.place, f"{service.name} has no {path} ({name}): there is no {host}")
        elif mount is None and (near := get_close_matches(path, given, 1, _ALL_BUT)):
            yield PATH.at(node.place, f"{service.name} has no {path} ({name}). Did you mean {near[0]}?")


def _unread(stack: Stack, service: Service) -> Iterator[Finding]:
    texts = [node.text for node in _texts(stack, service)]
    for grant in service.secrets:
        if not any(grant.target in text for text in texts):
            yield UNREAD.at(
                grant.place, f"nothing tells {service.name} of {grant.target}: set what reads it, or take it away"
            )


def _untold(stack: Stack, service: Service, call: Invocation) -> Iterator[Finding]:
    environment = told_nodes(stack, service)
    for grant in service.configs:
        setting, commands = _READS.get(PurePosixPath(grant.target).name, ("", ()))
        if setting and setting not in environment and (not commands or call.subcommand[:1] in commands):
            yield UNREAD.at(grant.place, f"nothing tells {service.name} of {grant.target}: set {setting}")

    for mount in service.mounts if "ZOOSERVE_REPOSITORY" not in environment else ():
        if mount.kind == "bind" and mount.source and any(stack.path(mount.source).glob("zoo/*/config.pbtxt")):
            yield UNREAD.at(mount.place, f"nothing tells {service.name} of {mount.target}: set ZOOSERVE_REPOSITORY")


def _unmade(stack: Stack) -> Iterator[Finding]:
    """Ours only: the script that makes the secrets knows each by its file's name."""
    try:
        script = (stack.folder / _SCRIPT).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    made = sorted(set(re.findall(r"[\w\-]+", script)))
    for name, node in stack.root["secrets"].entries.items():
        path = stack.path(node["file"].text) if node["file"].text else None
        if path is not None and path.name not in made and not path.exists():
            near = did_you_mean(path.name, made)
            yield UNMADE.at(node["file"].place, f"{_SCRIPT} makes no {path.name} for {name}. {near}".strip())
