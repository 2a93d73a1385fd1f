"""Sockets of the blocking client: whatever waits at one ends with the call's budget, and when the call is cancelled.

httpx bounds each read by itself, so that an answer that drips in outlasts any of its limits; and nothing in it ends a
read of another thread. Here a thread's reads and writes ask whom it works for, and what is left. A client that the
caller brought has httpx's own limits alone. Looking a name up is the system's, and is not bounded.
"""

import socket
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import httpcore
import httpx

from zooserve.sdk.working import work

__all__ = ["bounded"]


def bounded(client: httpx.Client) -> httpx.Client:
    """The client, whose sockets from now on heed their threads' work."""
    for transport in (client._transport, *client._mounts.values()):
        if isinstance(transport, httpx.HTTPTransport):
            transport._pool._network_backend = _Backend(transport._pool._network_backend)
    return client


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with self._waiting():
            return self._inner.read(max_bytes, _sooner(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        with self._waiting():
            self._inner.write(buffer, _sooner(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> "_Stream":
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, _sooner(timeout, httpcore.ConnectTimeout)))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)

    def _waiting(self) -> AbstractContextManager[None]:
        return nullcontext() if work.cancellation is None else work.cancellation.ending(self)

    def hang_up(self) -> None:
        """Unlike `close`, this wakes up who reads."""
        with suppress(OSError):
            # Not SSLSocket's own, which takes the session away from under the reader.
            socket.socket.shutdown(self._inner.get_extra_info("socket"), socket.SHUT_RDWR)


class _Backend(httpcore.NetworkBackend):
    def __init__(self, inner: httpcore.NetworkBackend) -> None:
        self._inner = inner

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> _Stream:
        limit = _sooner(timeout, httpcore.ConnectTimeout)
        return _Stream(self._inner.connect_tcp(host, port, limit, local_address, socket_options))

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> _Stream:
        return _Stream(self._inner.connect_unix_socket(path, _sooner(timeout, httpcore.ConnectTimeout), socket_options))

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)


def _sooner(timeout_s: float | None, over: type[httpcore.TimeoutException]) -> float | None:
    """The limit of one operation, or of the budget if that ends before. Raises `over` if it has ended."""
    if work.budget is None:
        return timeout_s
    remaining_s = work.budget.remaining_s()
    if remaining_s <= 0:
        raise over("the time budget is over")
    shorter_s = remaining_s if timeout_s is None else min(timeout_s, remaining_s)
    return None if shorter_s == float("inf") else shorter_s
