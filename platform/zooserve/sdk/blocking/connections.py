"""The connections of Zoo. Written by hand, as `concurrency` is; `aio.connections` has the same names for AsyncZoo."""

import httpx

from zooserve.sdk.budget import Budget
from zooserve.sdk.wire import bounded

__all__ = ["Connections", "limits_of"]

_CONNECT_S = 10.0


def limits_of(budget: Budget) -> httpx.Timeout:
    """httpx's limits for single operations."""
    remaining_s = max(0.001, budget.remaining_s())
    return httpx.Timeout(None if remaining_s == float("inf") else remaining_s, connect=min(_CONNECT_S, remaining_s))


class Connections:
    """A client whose connections are reused, by as many calls as run at once; one that was brought is never closed."""

    def __init__(self, base_url: str, brought: httpx.Client | None) -> None:
        self._brought = brought
        self._client = brought or _new_client(base_url)

    def client(self) -> httpx.Client:
        """For one request."""
        return self._client

    def close(self) -> None:
        """Close the connections."""
        if self._brought is None:
            self._client.close()


def _new_client(base_url: str) -> httpx.Client:
    # Reading the certificates takes tens of milliseconds: only where there is something to verify.
    return bounded(
        httpx.Client(
            verify=base_url.startswith("https:"),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=32),
        )
    )
