"""TCP ports: free ones chosen, taken ones told with their owner."""

import errno
import random
import re
import socket
from collections.abc import Collection
from contextlib import ExitStack, suppress
from pathlib import Path

from zooserve.errors import PortTaken, SetupError
from zooserve.processes.identity import command_of

__all__ = ["free_ports", "owner_of", "require_free", "reserved_ports"]

_ABOVE_RAYS = 20_000
_KERNELS_DEFAULT = 32_768
_TRIES = 100

_Address = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """`count` different ports that nobody listens on now, for who listens at once."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((host, 0))
        return [each.getsockname()[1] for each in sockets]


def reserved_ports(count: int, host: str = "127.0.0.1", but: Collection[int] = ()) -> list[int]:
    """`count` different ports, none of `but`, that nobody listens on now nor is given by chance later on.

    A server that loads first listens seconds after its port was chosen. Meanwhile any connection, and any server that
    leaves the choice to the kernel (Ray has a dozen), may get a port of the kernel's own range: so these lie below it.
    Raises SetupError if nobody could listen on that host.
    """
    with ExitStack() as held:
        found: list[int] = []
        while len(found) < count:
            try:
                found.append(_bound(held.enter_context(socket.socket()), host, but))
            except OSError as exc:
                raise SetupError(f"Nothing can listen on {host!r} ({exc.strerror}): choose another host.") from exc
        return found


def _bound(probe: socket.socket, host: str, but: Collection[int]) -> int:
    ours = [port for port in _below_the_kernels() if port not in but]
    for port in random.sample(ours, min(len(ours), _TRIES)):
        with suppress(OSError):
            probe.bind((host, port))
            return port
    probe.bind((host, 0))
    return int(probe.getsockname()[1])


def _below_the_kernels(setting: Path = Path("/proc/sys/net/ipv4/ip_local_port_range")) -> range:
    """Ports above those of Ray's workers and below those that the kernel gives away."""
    try:
        lowest = int(setting.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        lowest = _KERNELS_DEFAULT
    return range(_ABOVE_RAYS, lowest)


def require_free(host: str, port: int, setting: str) -> None:
    """Raise PortTaken, naming the owner and the setting to change, if somebody listens there now.

    Raises SetupError, naming the setting of the host, if nobody could listen there at all.
    """
    faults = [_fault(family, address) for family, address in _addresses(host, port, setting)]
    for fault in faults:
        if fault is not None and fault.errno == errno.EADDRINUSE:
            raise PortTaken(
                f"Port {port} on {host} is taken by {_describe(owner_of(port))} ({fault.strerror}). "
                f"Stop that process, or choose another port with {setting}."
            ) from fault
    # A name may stand for two addresses of which this machine has one, such as localhost without IPv6.
    if None not in faults:
        raise SetupError(_unusable(host, port, setting, faults[0])) from faults[0]


def _addresses(host: str, port: int, setting: str) -> list[tuple[int, _Address]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as exc:
        raise SetupError(_unusable(host, port, setting, exc)) from exc
    return [(family, address) for family, _, _, _, address in found]


def _fault(family: int, address: _Address) -> OSError | None:
    """What keeps a server from listening there, if anything does."""
    try:
        with socket.socket(family) as probe:
            # As servers do: connections of a server just stopped, in TIME_WAIT, are no hindrance.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen()
    except OSError as exc:
        return exc
    return None


def _unusable(host: str, port: int, setting: str, fault: OSError | None) -> str:
    reason = fault.strerror if fault else "no address"
    host_setting = re.sub(r"(HTTP_|GRPC_|METRICS_)?PORT$", "HOST", setting)
    return f"Nothing can listen on port {port} of {host!r} ({reason}): change {host_setting} or {setting}."


def owner_of(port: int) -> int | None:
    """The pid that listens on this port, as far as this user may see it."""
    import psutil

    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.AccessDenied:
        return None
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
            return int(connection.pid)
    return None


def _describe(pid: int | None) -> str:
    if pid is None:
        return "a process that this user may not see"
    return f"process {pid}: {command_of(pid)[:200]}"
