"""Whether a router that runs alone still works: Ray's parts are there, and it answers."""

import http.client
import time
from collections.abc import Callable, Iterable

from zooserve.processes.records import Record
from zooserve.settings import WatchSettings
from zooserve.unproxied import open_unproxied
from zooserve_cli.router_process import RouterProcess

__all__ = ["RAY_HEALS_S", "RouterLife", "answers"]

RAY_HEALS_S = 90.0
"""Ray replaces a dead replica by itself; within this time on a busy machine too."""


def answers(address: str, timeout_s: float) -> bool:
    """Whether the router's process behind this host:port says that it lives."""
    try:
        with open_unproxied(f"http://{address}/health/live", timeout_s) as answer:
            return bool(answer.status == 200)
    except (http.client.HTTPException, OSError):
        return False


class RouterLife:
    """What has been seen of one router. Nothing counts against it before it was whole, or answered, for once."""

    def __init__(
        self,
        router: RouterProcess,
        settings: WatchSettings,
        lives: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._router = router
        self._settings = settings
        self._lives = lives
        self._clock = clock
        self._whole = False
        self._incomplete = 0
        self._well: float | None = None
        self._looked = clock()

    def fault(self, stock: Iterable[Record]) -> str:
        """Why it has to be started anew; empty while it need not be. `stock` are the processes that run now."""
        return self._missing(self._router.missing_parts(stock)) or self._silence()

    def _missing(self, parts: list[str]) -> str:
        """Replicas go on serving for minutes without a raylet, so answers alone do not tell."""
        self._whole = self._whole or not parts
        self._incomplete = self._incomplete + 1 if self._whole and parts else 0
        return f"its {' and '.join(parts)} ended" if self._incomplete >= self._settings.patience else ""

    def _silence(self) -> str:
        now = self._clock()
        if now - self._looked >= self._settings.interval_s:
            self._looked = now
            if self._lives():
                self._well = self._clock()
        silent = self._well is not None and now - self._well > RAY_HEALS_S
        return f"/health/live has not answered for {RAY_HEALS_S:.0f} s" if silent else ""
