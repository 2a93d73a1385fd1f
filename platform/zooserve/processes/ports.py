"""TCP ports: free ones chosen, taken ones told with their owner."""

import socket
from contextlib import ExitStack

from zooserve.errors import PortTaken
from zooserve.processes.identity import command_of

__all__ = ["free_ports", "owner_of", "require_free"]


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """`count` different ports that nobody listens on now."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((host, 0))
        return [each.getsockname()[1] for each in sockets]


def require_free(host: str, port: int, setting: str) -> None:
    """Raise PortTaken, naming the owner and the setting to change, if nobody could listen there now."""
    with socket.socket() as probe:
        # As servers do: connections of a server just stopped, in TIME_WAIT, are no hindrance.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen()
        except OSError as exc:
            raise PortTaken(
                f"Port {port} on {host} is taken by {_describe(owner_of(port))} ({exc.strerror}). "
                f"Stop that process, or choose another port with {setting}."
            ) from exc


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
