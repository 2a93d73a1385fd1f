"""The connections of Zoo. Written by hand, as `concurrency` is; `aio.connections` has the same names for AsyncZoo."""

import os

import httpx

from zooserve.sdk.budget import Budget
from zooserve.sdk.proxies import direct, usable_proxies, verification
from zooserve.sdk.wire import bounded

__all__ = ["Connections", "limits_of"]

_CONNECT_S = 10.0


def limits_of(budget: Budget) -> httpx.Timeout:
    """httpx's limits for single operations."""
    remaining_s = max(0.001, budget.remaining_s())
    return httpx.Timeout(None if remaining_s == float("inf") else remaining_s, connect=min(_CONNECT_S, remaining_s))


class Connections:
    """A client whose connections are reused, by as many calls as run at once; one that was brought is never closed.

    A forked process begins with new ones: on those of its parent, each would read the other's answers.
    """

    def __init__(self, base_url: str, brought: httpx.Client | None) -> None:
        self._base_url = base_url
        self._brought = brought
        self._client = brought or _new_client(base_url)
        self._process = os.getpid()
        self._parents: list[httpx.Client] = []
        """Kept, since their sockets are the parent's to close."""

    def client(self) -> httpx.Client:
        """For one request."""
        if self._process != os.getpid() and self._brought is None and not self._client.is_closed:
            self._parents.append(self._client)
            self._client = _new_client(self._base_url)
            self._process = os.getpid()
        return self._client

    def close(self) -> None:
        """Close the connections."""
        if self._brought is None:
            self._client.close()


def _new_client(base_url: str) -> httpx.Client:
    with usable_proxies():
        return bounded(
            httpx.Client(
                verify=verification(base_url),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=32),
                **direct(base_url),
            )
        )
