"""Rules of addresses: who is named in an URL, a setting or a scrape target is there, in reach, and listens there."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches

from zooserve_cli.stack.configurations import configurations
from zooserve_cli.stack.environment import told, told_nodes
from zooserve_cli.stack.house import PREFIX, given_settings
from zooserve_cli.stack.invocation import HEALTH, OURS, image_program, invocations, repository_of, started
from zooserve_cli.stack.listening import listeners
from zooserve_cli.stack.service import Joined, Service, Word
from zooserve_cli.stack.stack import Stack
from zooserve_cli.stack.tree import Node
from zooserve_ensembles.checking.findings import Finding, Place, Rule, Severity
from zooserve_ensembles.checking.reading import did_you_mean

__all__ = ["RULES", "address_findings"]

UNKNOWN = Rule("unknown-service", Severity.ERROR, "An address, setting or scrape target names no service and no alias")
NETWORK = Rule(
    "network-not-shared", Severity.ERROR, "An address names a service that shares no network with the one that asks"
)
STOPPED = Rule("service-not-started", Severity.ERROR, "An address names a service that the profile does not start")
PORT = Rule("unheard-port", Severity.ERROR, "An address names a port that its service does not listen on")
ALIAS = Rule(
    "unasked-alias", Severity.ERROR, "Nobody asks for an alias, and it is all but a name that somebody asks for"
)
SPOKEN = Rule(
    "other-protocol",
    Severity.ERROR,
    "An address names a port that speaks something else: gRPC where HTTP is asked, no metrics where they are scraped",
)
PAGE = Rule("unknown-page", Severity.ERROR, "An address is all but a page that a recorded program answers")
TAKEN = Rule("name-taken", Severity.ERROR, "Two services that are not alike answer to one name in a network")
LOCAL = Rule("local-only", Severity.ERROR, "An address names a port that its service opens to itself only")

RULES = (UNKNOWN, NETWORK, STOPPED, PORT, SPOKEN, PAGE, LOCAL, ALIAS, TAKEN)

_URL = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+]*)://(?:[^@/\s]*@)?(?P<host>[A-Za-z0-9_.\-]+|\[[0-9a-fA-F:]+\])(?::(?P<port>\d{1,5}))?"
    r"(?P<page>/[\w./-]*)?"
)
_BARE = re.compile(r"(?P<host>[a-zA-Z][a-zA-Z0-9_\-]*):(?P<port>\d{2,5})")
_DEVICE = re.compile(r"/dev/tcp/(?P<host>[\w.\-]+)/(?P<port>\d{1,5})")
_SELF = frozenset({"localhost", "127.0.0.1", "[::1]"})
_DEFAULT_PORTS = {"http": 80, "https": 443}
_PORTS = (("http_port", "http"), ("grpc_port", "grpc"), ("metrics_port", "metrics"), ("port", "http"))
"""Our settings of a server's ports, and what is spoken there."""


@dataclass(frozen=True)
class Address:
    """A host and a port that somebody is told."""

    place: Place
    host: str
    port: int | None
    is_optional: bool = False
    """Whether nobody minds that the host is not started."""
    is_bare: bool = False
    """`name:number` without a scheme, which need be no address."""
    is_probe: bool = False
    """Whether the container asks itself, where the host is its own: other such addresses are told to browsers."""
    port_place: Place | None = None
    """Where the port is told, if not with the host."""
    wants: str = ""
    """What is spoken there: http, grpc or metrics; empty where that is not certain."""
    page: str = ""
    """The path that is asked for."""


def address_findings(stack: Stack) -> Iterator[Finding]:
    """Every address that a service of the profile is told."""
    asked: set[str] = set()
    for service in stack.services.values():
        for address in _addresses(stack, service):
            asked.add(address.host)
            yield from _judged(stack, service, address)
    for service in stack.services.values():
        for joined in service.networks:
            for alias in joined.aliases:
                near = get_close_matches(alias, asked, 1, 0.75)
                if alias not in asked and near:
                    yield ALIAS.at(joined.place, f"nobody asks for {alias}. Did you mean {near[0]}?")
                yield from _shared(stack, service, joined, alias)


def _shared(stack: Stack, service: Service, joined: Joined, alias: str) -> Iterator[Finding]:
    """Replicas may share a name; services that listen elsewhere cannot."""
    heard = listeners(stack, service)
    for other in stack.services.values():
        if other is service or alias not in other.names.get(joined.network, ()):
            continue
        if listeners(stack, other) != heard or repository_of(other.image) != repository_of(service.image):
            yield TAKEN.at(
                joined.place, f"{service.name} and {other.name} both answer to {alias} in {joined.network}: rename one"
            )


def _judged(stack: Stack, service: Service, address: Address) -> Iterator[Finding]:
    host = address.host
    if host in _SELF:
        if address.is_probe:
            yield from _heard(stack, service, address)
        return
    if host not in stack.all_names and ("." in host or host in service.extra_hosts):  # the world outside
        return
    reached = [other for other, _ in stack.reached(service, host)]
    for other in reached:
        yield from _heard(stack, other, address)
    if reached:
        return
    known = stack.named(host)
    if not known:
        near = did_you_mean(host, sorted(stack.all_names))
        if address.is_bare and not near.startswith("Did"):
            return
        yield UNKNOWN.at(
            address.place, f"{service.name} is told of {host}, and no service has this name. {near}".strip()
        )
    elif any(stack.is_active(one) for one in known):
        networks = ", ".join(sorted({name for one in known for name in one.names}))
        yield NETWORK.at(address.place, f"{service.name} cannot reach {host}, which is in: {networks}. Let it join one")
    elif not address.is_optional:
        yield STOPPED.at(
            address.place,
            f"{service.name} is told of {host}, which only {_profiles(known)} starts: choose that too, or name another",
        )


def _profiles(services: list[Service]) -> str:
    return ", ".join(sorted({profile for one in services for profile in one.profiles}))


def _heard(stack: Stack, service: Service, address: Address) -> Iterator[Finding]:
    heard = listeners(stack, service)
    if heard is None or address.port is None:
        return
    ports = {one.port: one for one in heard}
    place = address.port_place or address.place
    if address.port not in ports:
        known = ", ".join(str(port) for port in sorted(ports))
        yield PORT.at(place, f"{service.name} does not listen on {address.port}, but on {known}")
        return
    there = ports[address.port]
    if there.is_local and address.host not in _SELF:
        yield LOCAL.at(place, f"{service.name} opens {address.port} to itself only: let it listen on 0.0.0.0")
    if address.wants and there.speaks and address.wants not in there.speaks:
        better = ", ".join(str(one.port) for one in heard if address.wants in one.speaks)
        told = f"ask {better}" if better else "nothing there does"
        yield SPOKEN.at(place, f"{service.name} speaks no {address.wants} on {address.port}: {told}")
    yield from _page(stack, service, address)


def _page(stack: Stack, service: Service, address: Address) -> Iterator[Finding]:
    page = address.page.rstrip("/")
    calls = invocations(stack, service)
    known = [one for call in calls if call.program in stack.programs for one in stack.programs[call.program].pages]
    if page and page not in known and (near := get_close_matches(page, known, 1, 0.85)):
        yield PAGE.at(address.place, f"{service.name} answers no {page}. Did you mean {near[0]}?")


def _addresses(stack: Stack, service: Service) -> Iterator[Address]:
    environment = told_nodes(stack, service)
    image = image_program(stack, service)
    # Others put a gRPC port behind http://, too: OTEL_EXPORTER_OTLP_ENDPOINT, QDRANT_URL.
    over_http = (PREFIX, "PROMETHEUS_", "TEMPO_") if image and image.program == "grafana" else (PREFIX,)
    for name, node in environment.items():
        yield from _in_text(node, "http" if name.startswith(over_http) else "")
    for word in (*service.entrypoint, *service.command):
        yield from _in_text(_as_node(word), "http" if word.text.startswith("--trace-config=") else "")
    for word in service.health_test:
        yield from (replace(address, is_probe=True) for address in _in_text(_as_node(word), "http"))
    yield from _health(stack, service)
    yield from _settings(stack, service, environment)
    for tree in configurations(stack, service):
        yield from _in_tree(tree)


def _as_node(word: Word) -> Node:
    return Node(word.text, word.place, word.place, word.is_block)


def _health(stack: Stack, service: Service) -> Iterator[Address]:
    """Where our own health check asks, if it is not told."""
    test = service.health_test
    for call in started(test[1:], stack, service) if test else ():
        if call.program == HEALTH and call.flag("--url") is None:
            yield Address(call.place, "127.0.0.1", 8000, is_probe=True, wants="http")


def _in_text(node: Node, over_http: str = "") -> Iterator[Address]:
    """The addresses in a text; `over_http` is what those that begin with http:// certainly speak."""
    text = node.text
    for found in _URL.finditer(text):
        scheme, port = found["scheme"], found["port"]
        if scheme in ("http", "https", "grpc", "tcp"):
            number = int(port) if port else _DEFAULT_PORTS.get(scheme)
            wants = over_http if scheme in _DEFAULT_PORTS else ""
            yield Address(node.line_of(found.start()), found["host"], number, wants=wants, page=found["page"] or "")
    for found in _DEVICE.finditer(text):
        yield Address(node.line_of(found.start()), found["host"], int(found["port"]))
    if bare := _BARE.fullmatch(text.rpartition("=")[2]):
        yield Address(node.place, bare["host"], int(bare["port"]), is_bare=True)


def _in_tree(tree: Node) -> Iterator[Address]:
    for path, node in tree.walk():
        if path[-1:] == ("dns_sd_configs",):
            yield from _dns(node)
        elif node.is_scalar and isinstance(node.value, str) and path[-1:] != ("regex",):
            is_target = "static_configs" in path
            is_certain = is_target or path[-1:] == ("endpoint",)
            wants = "metrics" if is_target else "grpc" if _is_otlp_over_grpc(path) else ""
            for address in _in_text(node, "http" if path[-1:] == ("url",) else ""):
                yield replace(
                    address,
                    is_probe=is_target,
                    is_bare=address.is_bare and not is_certain,
                    wants=wants or address.wants,
                )


def _is_otlp_over_grpc(path: tuple[str, ...]) -> bool:
    """Whether this is where a Collector sends spans by gRPC."""
    return (
        len(path) == 3
        and path[0] == "exporters"
        and path[1].partition("/")[0] in ("otlp", "otlp_grpc")
        and path[2] == "endpoint"
    )


def _dns(node: Node) -> Iterator[Address]:
    for config in node.elements:
        port = config["port"].text
        for name in config["names"].elements:
            host = name.text.removeprefix("tasks.")
            number = int(port) if port.isdecimal() and len(port) < 6 else None
            yield Address(name.place, host, number, is_optional=True, wants="metrics")


def _settings(stack: Stack, service: Service, environment: dict[str, Node]) -> Iterator[Address]:
    """The servers that our router asks: each setting of a host with the ports beside it."""
    if not any(call.program == OURS and call.subcommand[:1] == ("route",) for call in invocations(stack, service)):
        return
    settings = given_settings(told(stack, service))
    for part, server in (("ZOO", settings.zoo), ("LEAF", settings.leaf), ("ENGINE", settings.engine)):
        host = environment.get(f"ZOOSERVE_{part}__HOST")
        if host is None or host.text in _SELF:
            continue
        told_ports: list[tuple[int | None, Node | None, str]] = [
            (port, environment.get(f"ZOOSERVE_{part}__{name.upper()}"), wants)
            for name, wants in _PORTS
            if (port := getattr(server, name, None)) is not None
        ]
        for port, node, wants in told_ports or [(None, None, "")]:
            yield Address(host.place, host.text, port, port_place=node.place if node else None, wants=wants)
