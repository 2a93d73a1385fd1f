"""The connections of AsyncZoo. `blocking.connections` has the same names for Zoo."""

import asyncio
from weakref import WeakKeyDictionary

import httpx

from zooserve.sdk.budget import Budget
from zooserve.sdk.proxies import direct, usable_proxies, verification

__all__ = ["Connections", "limits_of"]

_CONNECT_S = 10.0
"""A host that takes no connection for so long is gone; the rest of the budget is for another try."""


def limits_of(budget: Budget) -> httpx.Timeout:
    """httpx's limits for single operations: connecting alone, since `within` bounds the whole."""
    return httpx.Timeout(None, connect=min(_CONNECT_S, max(0.001, budget.remaining_s())))


class Connections:
    """A client whose connections are reused, by as many calls as run at once; one that was brought is never closed.

    Connections belong to the event loop that made them: after `asyncio.run` the next one begins with new ones.
    """

    def __init__(self, base_url: str, brought: httpx.AsyncClient | None) -> None:
        self._base_url = base_url
        self._brought = brought
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = WeakKeyDictionary()

    def client(self) -> httpx.AsyncClient:
        """For one request, in the running loop."""
        if self._brought is not None:
            return self._brought
        loop = asyncio.get_running_loop()
        if loop not in self._by_loop:
            self._by_loop[loop] = _new_client(self._base_url)
        return self._by_loop[loop]

    async def aclose(self) -> None:
        """Close the connections of the running loop; those of loops that have ended are gone."""
        client = self._by_loop.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()


def _new_client(base_url: str) -> httpx.AsyncClient:
    with usable_proxies():
        return httpx.AsyncClient(
            verify=verification(base_url),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=32),
            **direct(base_url),
        )
