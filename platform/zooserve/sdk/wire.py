"""Sockets of the blocking client: whatever waits at one ends with the call's budget, and when the call is cancelled.

httpx bounds each read by itself, so that an answer that drips in outlasts any of its limits; and nothing in it ends a
read of another thread. Here a thread says whom it works for, and its reads and writes ask for what is left. A client
that the caller brought has httpx's own limits alone. Looking a name up is the system's, and is not bounded.
"""

import socket
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import httpcore
import httpx

from zooserve.sdk.budget import Budget

__all__ = ["Cancellation", "bounded", "pausing", "working"]


class Cancellation:
    """Ends what several threads wait for at sockets. Once for all of a call."""

    def __init__(self) -> None:
        self.happened = threading.Event()
        self._lock = threading.Lock()
        self._waiting: set[_Stream] = set()

    def cancel(self) -> None:
        """Whoever waits wakes up with an error; whoever is about to gets CancelledError."""
        with self._lock:
            self.happened.set()
            for stream in self._waiting:
                stream.hang_up()

    def refuse(self) -> None:
        """Raises CancelledError if it has happened."""
        if self.happened.is_set():
            raise CancelledError

    @contextmanager
    def ending(self, stream: "_Stream") -> Iterator[None]:
        """In the block the stream is one to hang up."""
        with self._lock:
            self.refuse()
            self._waiting.add(stream)
        try:
            yield
        finally:
            with self._lock:
                self._waiting.discard(stream)


class _Work(threading.local):
    """Whom this thread works for."""

    budget: Budget | None = None
    cancellation: Cancellation | None = None


_work = _Work()


@contextmanager
def working(*, budget: Budget | None = None, cancellation: Cancellation | None = None) -> Iterator[None]:
    """In the block this thread's sockets heed these, or, what is left out, those of the block around it."""
    outer = _work.budget, _work.cancellation
    _work.budget, _work.cancellation = budget or outer[0], cancellation or outer[1]
    try:
        if _work.cancellation is not None:
            _work.cancellation.refuse()
        yield
    finally:
        _work.budget, _work.cancellation = outer


def pausing(seconds: float) -> None:
    """Sleep. Raises CancelledError as soon as the call is cancelled."""
    cancellation = _work.cancellation
    (threading.Event() if cancellation is None else cancellation.happened).wait(seconds)
    if cancellation is not None:
        cancellation.refuse()


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
        return nullcontext() if _work.cancellation is None else _work.cancellation.ending(self)

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
    if _work.budget is None:
        return timeout_s
    remaining_s = _work.budget.remaining_s()
    if remaining_s <= 0:
        raise over("the time budget is over")
    shorter_s = remaining_s if timeout_s is None else min(timeout_s, remaining_s)
    return None if shorter_s == float("inf") else shorter_s
