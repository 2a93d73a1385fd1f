"""Rules of files: what is mounted, given as a secret or configuration, or read as an env file is there."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

from zooserve_cli.stack.service import Mount, Service
from zooserve_cli.stack.stack import Stack
from zooserve_cli.stack.tree import Node
from zooserve_ensembles.checking.findings import Finding, Rule, Severity

__all__ = ["RULES", "file_findings"]

MOUNT = Rule("mount-missing", Severity.ERROR, "A mount's source is not there: Compose would make an empty folder of it")
TARGET = Rule("mount-target", Severity.ERROR, "A mount leads to no absolute path, or two of a service lead to the same")
CONFIG = Rule("config-missing", Severity.ERROR, "The file of a configuration, or an env_file, is not there")
ABSENT = Rule(
    "secret-absent",
    Severity.ERROR,
    "The file of a secret has yet to be made; a note where `.env` has, too",
)
EMPTY = Rule("secret-empty", Severity.ERROR, "The file of a secret has no bytes, or the secret names nothing")
TRACKED = Rule("secret-tracked", Severity.ERROR, "The file of a secret is tracked by git")

RULES = (MOUNT, TARGET, CONFIG, ABSENT, EMPTY, TRACKED)


def file_findings(stack: Stack) -> Iterator[Finding]:
    """Every file of the host that a container is to see."""
    for service in stack.services.values():
        yield from _mounts(stack, service)
        yield from _env_files(stack, service)
    for name in sorted({grant.source for service in stack.services.values() for grant in service.configs}):
        yield from _config(stack, name)
    for name in sorted({grant.source for service in stack.services.values() for grant in service.secrets}):
        yield from _secret(stack, name)


def _absent_weighs(stack: Stack) -> Severity | None:
    """An example's variables are looked at before anybody set the stack up."""
    return None if stack.is_set_up else Severity.NOTE


def _mounts(stack: Stack, service: Service) -> Iterator[Finding]:
    targets: dict[str, Mount] = {}
    for mount in service.mounts:
        target = mount.target.rstrip("/") or mount.target
        if not target.startswith("/"):
            yield TARGET.at(mount.place, f"{mount.target or 'nothing'} is no path of a container: begin it with /")
        elif target in targets:
            yield TARGET.at(mount.place, f"{target} is mounted already on line {targets[target].place.line}")
        targets.setdefault(target, mount)
        if mount.kind != "bind" or mount.creates:
            continue
        if not mount.source:
            yield MOUNT.at(mount.place, f"{mount.target} has no source: name a file or folder of the host")
        elif not _is_of_the_host(mount.source) and not _exists(path := stack.path(mount.source)):
            yield MOUNT.at(mount.place, f"make {path}, or mend the path: {service.name} is to see it at {mount.target}")


def _is_of_the_host(source: str) -> bool:
    """Whether it belongs to the machine that runs the stack, which need not be this one."""
    return source.startswith(("/var/run/", "/run/", "/dev/", "/proc", "/sys")) or source[1:2] == ":"


def _env_files(stack: Stack, service: Service) -> Iterator[Finding]:
    node = service.node["env_file"]
    for part in node.elements or (node,):
        source = part["path"].text or part.text
        if source and part["required"].text != "false" and not _exists(stack.path(source)):
            yield CONFIG.at(
                part.place, f"make {stack.path(source)}, or mend the path: {service.name} reads it as env_file"
            )


def _config(stack: Stack, name: str) -> Iterator[Finding]:
    node = stack.root["configs"][name]
    file = node["file"]
    if file.text and not _exists(stack.path(file.text)):
        yield CONFIG.at(file.place, f"make {stack.path(file.text)}, or mend the path: it is the configuration {name}")


def _secret(stack: Stack, name: str) -> Iterator[Finding]:
    node = stack.root["secrets"][name]
    if not node.is_there or node["external"].is_there:
        return
    if variable := node["environment"].text:
        if not stack.env.values.get(variable):
            yield ABSENT.at(
                node["environment"].place, f"set {variable}: it is the secret {name}", _absent_weighs(stack)
            )
        return
    file = node["file"]
    if not file.text:
        yield EMPTY.at(node.key_place, f"the secret {name} names no file: give it one")
        return
    yield from _secret_file(stack, name, file, may_be_empty=node["x-may-be-empty"].is_true)


def _secret_file(stack: Stack, name: str, node: Node, *, may_be_empty: bool) -> Iterator[Finding]:
    path = stack.path(node.text)
    if _is_tracked(path):
        yield TRACKED.at(
            node.place, f"{path} is the secret {name}, and git tracks it: git rm --cached, ignore it, change it"
        )
    if not _exists(path):
        yield ABSENT.at(node.place, f"make {path} before the first start: the secret {name}", _absent_weighs(stack))
    elif path.is_dir():
        yield EMPTY.at(node.place, f"{path} is a folder, and must be the file of the secret {name}")
    elif not may_be_empty and not _has_text(path):
        yield EMPTY.at(node.place, f"{path} is empty: write the secret {name} into it")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _has_text(path: Path) -> bool:
    try:
        return bool(path.read_bytes()[:4096].strip())
    except OSError:  # not ours to read: another user's, as it should be
        return True


def _is_tracked(path: Path) -> bool:
    if not _exists(path.parent):
        return False
    command = ["git", "-C", str(path.parent), "ls-files", "--error-unmatch", "--", path.name]
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=20).returncode == 0
    except (OSError, ValueError, subprocess.SubprocessError):
        return False
