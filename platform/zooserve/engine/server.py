"""One engine server as a child process: started, waited for, stopped, started again."""

import http.client
import os
import sys
import time
from pathlib import Path

from zooserve.engine.orders import EngineOrders
from zooserve.errors import ServerFailed
from zooserve.processes.child import Child, ChildServer
from zooserve.processes.files import write_atomically
from zooserve.unproxied import open_unproxied

__all__ = ["EngineServer"]

_POLL_S = 0.1


class EngineServer(ChildServer):
    """`python -m zooserve.engine` with its orders in `orders_file`, whose folder is private."""

    name = "engine"

    def __init__(self, orders: EngineOrders, orders_file: Path, log_file: Path) -> None:
        self.orders = orders
        self._orders_file = orders_file
        super().__init__(Child(self.name, log_file))

    @property
    def address(self) -> str:
        """host:port of its OpenAI API."""
        return f"{self.orders.host}:{self.orders.port}"

    @property
    def health_url(self) -> str:
        """Answers 200 once the model is loaded; it asks for no key."""
        return f"http://{self.address}/health"

    def start(self) -> None:
        """Start the process, which ends when this one does; it loads its model while this returns."""
        write_atomically(self._orders_file, self.orders.model_dump_json(indent=1))
        self._child.start([sys.executable, "-m", "zooserve.engine", str(self._orders_file)], _environment())

    def wait_until_loaded(self, timeout_s: float) -> None:
        """Block until it answers. Raises ServerFailed with the log's end otherwise."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.pid is None:
                raise ServerFailed(f"engine: it ended while loading its model.\n{self.log_tail()}")
            if self._answers():
                return
            time.sleep(_POLL_S)
        raise ServerFailed(f"engine: not loaded after {timeout_s:.0f} s.\n{self.log_tail()}")

    def stop(self, timeout_s: float) -> None:
        """SIGTERM, then SIGKILL once `timeout_s` is over. Its orders go too: the key in them opens nothing any more."""
        self._child.stop(timeout_s)
        self._orders_file.unlink(missing_ok=True)

    def _answers(self) -> bool:
        try:
            with open_unproxied(self.health_url, timeout=1) as answer:
                return bool(answer.status == 200)
        except (http.client.HTTPException, OSError):
            return False


def _environment() -> dict[str, str]:
    # libgomp's default spinning drops decoding from 101 to 6 tokens/s beside one busy neighbour (measured), and it
    # reads this when it is loaded.
    return {"GOMP_SPINCOUNT": "100", **os.environ}
