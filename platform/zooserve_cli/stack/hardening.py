"""Rules of what a container may do on its host."""

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from zooserve_cli.stack.environment import told_nodes
from zooserve_cli.stack.service import Service
from zooserve_cli.stack.stack import Stack
from zooserve_ensembles.checking.findings import Finding, Rule, Severity

__all__ = ["RULES", "hardening_findings"]

PRIVILEGED = Rule(
    "privileged",
    Severity.ERROR,
    "A container is privileged, runs as root by request, or is given capabilities or no confinement",
)
HOST = Rule("host-namespace", Severity.ERROR, "A container shares the host's network, processes, memory or users")
SOCKET = Rule("engine-socket", Severity.ERROR, "A container sees the container engine's socket: it could do anything")
WRITABLE = Rule(
    "writable-root",
    Severity.WARNING,
    "A container's file system is neither read-only nor says a comment why it is written to",
)

CLEAR = Rule(
    "secret-in-clear",
    Severity.ERROR,
    "A password, token or key is a plain variable, which `docker inspect` and every child process see",
)

RULES = (PRIVILEGED, HOST, SOCKET, WRITABLE, CLEAR)

_SOCKETS = ("docker.sock", "containerd.sock", "podman.sock", "crio.sock")
_SECRET = re.compile(
    r"(?:^|_)(?:PASSWORD|PASSWD|TOKEN|SECRET|SALT|API_KEY|SECRET_KEY|PRIVATE_KEY|ACCESS_KEY)$", re.IGNORECASE
)
_REASON = re.compile(r"#.*(read.?only|writ|tmpfs)", re.IGNORECASE)


def hardening_findings(stack: Stack) -> Iterator[Finding]:
    """Every service of the profile."""
    for service in stack.services.values():
        node = service.node
        if node["privileged"].is_true:
            yield PRIVILEGED.at(node["privileged"].key_place, f"{service.name} is privileged: remove it")
        if node["user"].text.partition(":")[0] in ("root", "0"):
            yield PRIVILEGED.at(node["user"].place, f"{service.name} runs as root: name another user")
        for part in node["cap_add"].elements:
            yield PRIVILEGED.at(part.place, f"{service.name} is given {part.text}: remove it from cap_add")
        for part in node["security_opt"].elements:
            if re.search(r"unconfined|disable", part.text):
                yield PRIVILEGED.at(part.place, f"{service.name} runs with {part.text}: remove it")
        for key in ("network_mode", "pid", "ipc", "userns_mode", "uts", "cgroup"):
            if node[key].text == "host":
                instead = ": set shm_size instead" if key == "ipc" else ": remove it"
                yield HOST.at(node[key].place, f"{service.name} shares the host's {key}{instead}")
        for mount in service.mounts:
            if mount.source.endswith(_SOCKETS):
                yield SOCKET.at(mount.place, f"{service.name} sees {mount.source}: remove it")
        if node["use_api_socket"].is_true:
            yield SOCKET.at(node["use_api_socket"].key_place, f"{service.name} sees the engine's socket: remove it")
        for name, value in told_nodes(stack, service).items():
            if _SECRET.search(name) and value.text:
                yield CLEAR.at(
                    value.key_place,
                    f"{name} of {service.name} stands in clear: give it as a secret, a file that it is read from",
                )
        if not node["read_only"].is_true and not _has_reason(service):
            yield WRITABLE.at(
                service.place, f"set read_only: true for {service.name}, or say in a comment in it why it must write"
            )


def _has_reason(service: Service) -> bool:
    """Whether a comment in the service, or directly above it, speaks of it."""
    lines = _lines(service.place.file)
    first = service.place.line
    deep = _depth(lines[first - 1]) if 0 < first <= len(lines) else 0
    block: list[str] = []
    block += lines[first - 1 : first]
    for line in lines[first:]:
        if line.strip() and _depth(line) <= deep:
            break
        block.append(line)
    for line in reversed(lines[: first - 1]):
        if not line.strip().startswith("#"):
            break
        block.append(line)
    return any(_REASON.search(line) for line in block)


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


@lru_cache(maxsize=8)
def _read(file: Path, changed: int) -> tuple[str, ...]:
    return tuple(file.read_text(encoding="utf-8", errors="replace").splitlines())


def _lines(file: Path) -> tuple[str, ...]:
    try:
        return _read(file, file.stat().st_mtime_ns)
    except OSError:
        return ()
