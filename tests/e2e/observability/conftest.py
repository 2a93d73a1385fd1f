"""A real Prometheus over a running platform, a collector that is ill now and then, and pages recorded elsewhere."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from zooserve.processes.ports import reserved_ports

INSTALL = "apt-get install -y --no-install-recommends prometheus"
START_S = 30


@pytest.fixture(scope="session")
def prometheus_binary() -> str:
    """Where the real Prometheus is. Without it tests are skipped, but not where CI runs them."""
    if found := shutil.which("prometheus"):
        return found
    if os.environ.get("CI"):
        pytest.fail(f"prometheus is not installed: {INSTALL}")
    pytest.skip(f"prometheus is not installed: {INSTALL}")


@pytest.fixture(scope="module")
def start_prometheus(prometheus_binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """Starts one with a configuration's text, and returns its base URL; all of them stop with the module.

    Where the text has localhost:9090, a Prometheus' own address, it gets the one that this one listens at.
    """
    with ExitStack() as stack:

        def start(configuration: str) -> str:
            folder = tmp_path_factory.mktemp("prometheus")
            address = f"127.0.0.1:{reserved_ports(1)[0]}"
            (folder / "prometheus.yml").write_text(configuration.replace("localhost:9090", address))
            return stack.enter_context(_running(prometheus_binary, folder, address))

        yield start


@contextmanager
def _running(binary: str, folder: Path, address: str) -> Iterator[str]:
    arguments = ["--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address={address}"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([binary, *arguments], cwd=folder, stdout=log, stderr=log)
    try:
        _wait_until_ready(f"http://{address}", process, folder / "log")
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(START_S)


def _wait_until_ready(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/-/ready", timeout=1).status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(0.1)  # between two looks
    pytest.fail(f"prometheus did not get ready:\n{log.read_text()[-2000:]}")
