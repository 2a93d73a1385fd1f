"""Looking after the engine server: is it there, does it answer, and the remedy if not."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import httpx

from zooserve.engine.server import EngineServer
from zooserve.settings import WatchSettings
from zooserve.triton.watch import Restart

__all__ = ["EngineWatch"]


class EngineWatch:
    """The looks at one engine server, at its `/slots`.

    The loop that decodes answers that one itself, between two batches. `/health` comes from another thread, and is 200
    also of an engine that computes on one token for ever (a grammar with 2^60 ways did that).
    """

    faults: Mapping[str, str] = MappingProxyType({})
    """Of single models: an engine has one, which is well where the server is."""
    failed: Sequence[str] = ()
    models: Sequence[str] = ()

    def __init__(self, server: EngineServer, settings: WatchSettings) -> None:
        self._server = server
        self._settings = settings
        self._silences = 0

    async def look(self, http: httpx.AsyncClient) -> Sequence[Restart]:
        """A restart if it has ended, or did not answer for `patience` looks in a row."""
        if self._server.pid is None:
            return [Restart(f"it ended by itself (exit code {self._server.exit_code})")]
        if not (silence := await self._silence(http)):
            self._silences = 0
            return []
        self._silences += 1
        return [Restart(silence)] if self._silences >= self._settings.patience else []

    def forget(self) -> None:
        """What was found says nothing of a server that is started anew."""
        self._silences = 0

    async def _silence(self, http: httpx.AsyncClient) -> str:
        try:
            reply = await http.get(
                f"http://{self._server.address}/slots",
                headers={"authorization": f"Bearer {self._server.orders.key}"},
                timeout=self._settings.probe_timeout_s,
            )
        except httpx.HTTPError as exc:
            return f"/slots does not answer ({type(exc).__name__})"
        return "" if reply.status_code == 200 else f"/slots answers {reply.status_code}"
