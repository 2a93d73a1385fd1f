"""Routers beside a platform's own: each a process under uvicorn, without Ray and HAProxy, over its servers.

python benchmarks/own_router.py SETTINGS.json PORT
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import uvicorn

from zooserve.processes.ports import reserved_ports
from zooserve.settings import Settings
from zooserve_router.app import create_app

__all__ = ["OwnRouter", "own_router", "resident_mb"]

_START_S = 60.0


@dataclass(frozen=True)
class OwnRouter:
    """One that runs."""

    pid: int
    address: str
    """host:port."""

    @property
    def url(self) -> str:
        """Its base address."""
        return f"http://{self.address}"

    def told(self, series: str) -> float:
        """The sum of a series on its metrics page, whose beginning may have labels."""
        lines = httpx.get(f"{self.url}/metrics").text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(series))


@contextmanager
def own_router(settings: Settings) -> Iterator[OwnRouter]:
    """A router of these settings, once it is ready for everything."""
    (port,) = reserved_ports(1)
    with tempfile.TemporaryDirectory(prefix="zooserve-router-") as folder:
        file = Path(folder) / "settings.json"
        file.write_text(settings.model_dump_json(), encoding="utf-8")
        # As the platform's replicas have it: metrics in files that several processes share.
        environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": folder}
        process = subprocess.Popen([sys.executable, __file__, str(file), str(port)], env=environment)
        try:
            router = OwnRouter(process.pid, f"127.0.0.1:{port}")
            _wait_until_ready(router, process)
            yield router
        finally:
            process.terminate()
            process.wait(60)


def resident_mb(pid: int) -> float:
    """Memory of a process that is in RAM."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"process {pid} has no memory")


def _wait_until_ready(router: OwnRouter, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{router.url}/health/ready", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise RuntimeError(f"the router at {router.address} is not ready")


def main() -> None:
    file, port = sys.argv[1:]
    settings = Settings.model_validate_json(Path(file).read_text(encoding="utf-8"))
    uvicorn.run(create_app(settings), host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main()
