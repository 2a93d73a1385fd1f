"""Rules of published ports: something listens behind each, no two services take the same, few are open to all."""

from collections.abc import Iterator

from zooserve_cli.stack.invocation import OURS, invocations
from zooserve_cli.stack.listening import listeners
from zooserve_cli.stack.service import Published, Service
from zooserve_cli.stack.stack import Stack
from zooserve_ensembles.checking.findings import Finding, Rule, Severity

__all__ = ["RULES", "port_findings"]

SHAPE = Rule("port-shape", Severity.ERROR, "A published port is no number, or has none of the host")
UNHEARD = Rule("published-port", Severity.ERROR, "Nothing listens in the container on the port that is published")
LOCAL = Rule("published-local", Severity.ERROR, "What is published listens on the container's own loopback only")
TAKEN = Rule("port-taken", Severity.ERROR, "Two services of one profile publish the same port")
OPEN = Rule(
    "published-to-all",
    Severity.ERROR,
    "A known program other than the router and Grafana is published to all interfaces",
)

INSIDE = Rule("published-inside", Severity.ERROR, "A port is published, and all networks of its service are internal")

RULES = (SHAPE, UNHEARD, LOCAL, TAKEN, OPEN, INSIDE)

_MAY_BE_OPEN = frozenset({"grafana"})


def port_findings(stack: Stack) -> Iterator[Finding]:
    """Every published port of the services that start together."""
    taken: list[tuple[Published, Service]] = []
    for service in stack.services.values():
        heard = listeners(stack, service)
        if service.published and _is_inside(stack, service):
            networks = ", ".join(joined.network for joined in service.networks)
            yield INSIDE.at(
                service.published[0].place,
                f"{service.name} is in {networks} only, which nobody reaches from outside: let it join one that "
                "is not internal",
            )
        for port in service.published:
            if port.is_range:
                continue
            if port.target is None or (port.port and not _is_port(port.port)):
                yield SHAPE.at(port.place, f"{port.port or 'nothing'} is no port: write HOST_PORT:CONTAINER_PORT")
                continue
            if heard is not None:
                yield from _heard(service, port, {one.port: one.is_local for one in heard})
            if not port.is_local and not _may_be_open(stack, service):
                yield OPEN.at(
                    port.place, f"{service.name} would be open to everybody: write 127.0.0.1:{port.port}:{port.target}"
                )
            for other, owner in taken:
                if other.port == port.port and port.port and _same_address(other, port):
                    yield TAKEN.at(
                        port.place, f"{owner.name} publishes {port.port} already, on line {other.place.line}"
                    )
            taken.append((port, service))


def _heard(service: Service, port: Published, heard: dict[int, bool]) -> Iterator[Finding]:
    if port.target not in heard:
        known = ", ".join(str(number) for number in sorted(heard))
        yield UNHEARD.at(port.place, f"{service.name} listens on {known}, not on {port.target}")
    elif heard[port.target]:
        yield LOCAL.at(port.place, f"{service.name} listens on {port.target} for itself only: let it listen on 0.0.0.0")


def _is_inside(stack: Stack, service: Service) -> bool:
    declared = stack.root["networks"]
    return bool(service.networks) and all(declared[one.network]["internal"].is_true for one in service.networks)


def _may_be_open(stack: Stack, service: Service) -> bool:
    calls = invocations(stack, service)
    if not calls:
        return True
    return all(
        call.program in _MAY_BE_OPEN or (call.program == OURS and call.subcommand[:1] in (("route",), ("up",)))
        for call in calls
    )


def _same_address(one: Published, other: Published) -> bool:
    everywhere = {"", "0.0.0.0", "[::]"}  # noqa: S104  only compared
    return one.host == other.host or one.host in everywhere or other.host in everywhere


def _is_port(text: str) -> bool:
    parts = text.split("-")
    return len(parts) <= 2 and all(part.isdecimal() and 0 <= int(part) < 65536 for part in parts)
