"""On which ports a service listens: as its program's record, flags, environment and configuration say."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from zooserve.settings import Settings, TritonSettings
from zooserve_cli.stack.environment import told
from zooserve_cli.stack.house import given_settings
from zooserve_cli.stack.invocation import OURS, Invocation, invocations
from zooserve_cli.stack.recorded import ListeningPort, Program
from zooserve_cli.stack.service import Service
from zooserve_cli.stack.stack import Stack
from zooserve_cli.stack.tree import Node, TreeError, read_tree

__all__ = ["Listener", "configuration", "configured", "configured_path", "listeners", "tree_of"]

_PAGES = frozenset({"http", "metrics"})
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")
_ENDPOINT = re.compile(r"(?P<host>[\w.\-]*|\[[0-9a-fA-F:]*\]|\$\{env:[^}]*\}):(?P<port>\d{1,5})")


@dataclass(frozen=True)
class Listener:
    """A port that is listened on; a local one is heard inside the container only."""

    port: int
    is_local: bool = False
    speaks: frozenset[str] = frozenset()
    """Of http, grpc and metrics; empty where nobody knows."""


def listeners(stack: Stack, service: Service) -> tuple[Listener, ...] | None:
    """The ports of a service; None where its program is not known, or may listen anywhere."""
    found = [one for call in invocations(stack, service) for one in _of(stack, service, call)]
    if not found:
        return None
    return (*found, *(Listener(port) for port in service.exposed))


def configuration(stack: Stack, service: Service, program: Program, call: Invocation | None) -> Node | None:
    """The configuration file that a program reads, where it is a file of the host."""
    path = configured_path(program, call)
    host = stack.on_host(service, path) if path else None
    return tree_of(host) if host is not None and host.is_file() else None


def configured_path(program: Program, call: Invocation | None) -> str:
    """The path in the container that a program reads its configuration from."""
    known = program.config
    if known is None:
        return ""
    given = call.flag(known.flag) if call and known.flag else None
    if given is None and call and known.flag and known.flag.startswith("-"):
        given = call.flag(f"-{known.flag}")
    return (given.text if given else known.default) or ""


@lru_cache(maxsize=64)
def _tree(path: Path, changed: int) -> Node | None:
    try:
        return read_tree(path)
    except TreeError:
        return None


def tree_of(path: Path) -> Node | None:
    """A YAML file of the host; None where it cannot be read."""
    try:
        return _tree(path, path.stat().st_mtime_ns)
    except (OSError, ValueError):
        return None


def _of(stack: Stack, service: Service, call: Invocation) -> Iterator[Listener]:
    if call.program == OURS:
        yield from _ours(given_settings(told(stack, service)), call)
        return
    if call.program not in stack.programs:
        return
    program = stack.programs[call.program]
    tree = configuration(stack, service, program, call)
    environment = told(stack, service)
    for port in program.ports:
        if not (port.is_off_without and tree is not None and not _is_on(port, tree)):
            yield _moved(port, call, environment, tree)
    if program.config is not None and program.config.listens and tree is not None:
        yield from _endpoints(tree)


def _is_on(port: ListeningPort, tree: Node) -> bool:
    """Whether the configuration has the part whose address this is, an empty one too."""
    *above, part, _ = (port.config or "").split(".")
    node = tree
    for key in above:
        node = _below(node, key)
    return part in node.entries or _below(node, part).is_there


def configured(tree: Node | None, dotted: str | None) -> str:
    """What a configuration says under dotted keys; a number is a place in a list."""
    if tree is None or dotted is None:
        return ""
    node = tree
    for part in dotted.split("."):
        node = node[int(part)] if part.isdecimal() else _below(node, part)
    return node.text


def _below(node: Node, key: str) -> Node:
    """The part under a key, or under the same with a name of its author's behind it, as `otlp/2`."""
    named = next((name for name in node.entries if name.startswith(f"{key}/")), key)
    return node[key if key in node.entries else named]


def _ours(settings: Settings, call: Invocation) -> Iterator[Listener]:
    match call.subcommand:
        case ("route" | "up", *_):
            router = settings.router
            yield Listener(settings.port, settings.host in _LOOPBACK, _PAGES)
            if router.haproxy_metrics_port:
                yield Listener(router.haproxy_metrics_port, router.haproxy_metrics_host in _LOOPBACK, _PAGES)
            if router.ray_metrics_port:
                yield Listener(router.ray_metrics_port, speaks=_PAGES)
            if settings.trace_log.port:
                yield Listener(settings.trace_log.port, settings.trace_log.host in _LOOPBACK, frozenset({"http"}))
        case ("triton", "zoo", *_):
            yield from _triton(settings.zoo)
        case ("triton", "leaf", *_):
            yield from _triton(settings.leaf)


def _triton(settings: TritonSettings) -> Iterator[Listener]:
    for port, speaks in (
        (settings.http_port, frozenset({"http"})),
        (settings.grpc_port, frozenset({"grpc"})),
        (settings.metrics_port, _PAGES),
    ):
        if port is not None:
            yield Listener(port, settings.host in _LOOPBACK, speaks)


def _moved(port: ListeningPort, call: Invocation, environment: dict[str, str], tree: Node | None) -> Listener:
    texts = [
        word.text if port.flag and (word := call.flag(port.flag)) else "",
        environment.get(port.env, "") if port.env else "",
        configured(tree, port.config),
    ]
    host = call.flag(port.host_flag) if port.host_flag else None
    is_local = (host.text if host else environment.get(port.host_env or "", "")) in _LOOPBACK
    for text in texts:
        if text.isdecimal() and len(text) < 6:
            return Listener(int(text), is_local, port.speaks)
        if found := _ENDPOINT.fullmatch(text):
            return Listener(int(found["port"]), found["host"] in _LOOPBACK, port.speaks)
    return Listener(port.port, is_local, port.speaks)


def _endpoints(tree: Node) -> Iterator[Listener]:
    for part in ("receivers", "extensions", "exporters", "distributor", "service"):
        for path, node in tree[part].walk():
            is_sent_to = part == "exporters" and path[:1] != ("prometheus",)
            if (
                not is_sent_to
                and path
                and path[-1] in ("endpoint", "address")
                and (found := _ENDPOINT.fullmatch(node.text))
            ):
                yield Listener(int(found["port"]), found["host"] in _LOOPBACK)
