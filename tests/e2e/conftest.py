"""One platform for every end-to-end test of a run, and platforms of their own for the tests of life and death."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from zooserve.processes.ports import reserved_ports
from zooserve.processes.state import PlatformState, StateFolder

ROOT = Path(__file__).parents[2]
START_TIMEOUT_S = 400


@dataclass(frozen=True)
class Platform:
    """One platform in a state folder of its own, driven by the command line as a user would."""

    folder: StateFolder
    port: int
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        """The checkout, from which the command runs."""
        return ROOT

    @property
    def url(self) -> str:
        """Base address of the router, without a slash at the end."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def state(self) -> PlatformState:
        """What it says of itself now."""
        state = self.folder.read_state()
        assert state is not None
        return state

    @property
    def zoo_http(self) -> str:
        """host:port of the zoo's Triton."""
        return self.state.zoo_http

    @property
    def leaf_http(self) -> str:
        """host:port of the leaf's Triton."""
        return self.state.leaf_http

    @property
    def leaf_grpc(self) -> str:
        """host:port of the leaf's gRPC endpoint."""
        return self.state.leaf_grpc

    @property
    def zoo_metrics(self) -> str:
        """host:port of the zoo's metrics."""
        return self.state.zoo_metrics

    @property
    def leaf_metrics(self) -> str:
        """host:port of the leaf's metrics."""
        return self.state.leaf_metrics

    def command(self, *arguments: str) -> list[str]:
        """`zooserve ARGUMENTS` as a list of words."""
        return [sys.executable, "-m", "zooserve_cli", *arguments]

    def variables(self) -> dict[str, str]:
        """The environment that the command needs."""
        own = {"ZOOSERVE_STATE_DIR": str(self.folder.root), "ZOOSERVE_PORT": str(self.port)}
        return {**os.environ, **own, **self.environment}

    def zooserve(self, *arguments: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        """Run the command to its end."""
        return subprocess.run(
            self.command(*arguments),
            env=self.variables(),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def up(self) -> Any:
        """Start it detached and return what `--json` says. Fails the test with its logs otherwise."""
        done = self.zooserve("up", "--detach", "--json", timeout_s=START_TIMEOUT_S)
        assert done.returncode == 0, f"{done.stderr}\n{self.logs()}"
        return json.loads(done.stdout)

    def down(self) -> subprocess.CompletedProcess[str]:
        """Stop it, or clear away what is left."""
        return self.zooserve("down")

    def logs(self) -> str:
        """The end of every log, for the message of a failing test."""
        files = sorted(self.folder.logs.glob("*.log"))
        return "\n".join(f"== {file.name}\n{file.read_text(errors='replace')[-3000:]}" for file in files)


@pytest.fixture(scope="session")
def platform() -> Iterator[Platform]:
    """The platform that all end-to-end tests of this run share; it is not theirs to break."""
    yield from _platforms_own({})


@pytest.fixture
def platform_factory() -> Iterator[Callable[..., Platform]]:
    """Makes platforms that are not started yet, for tests that start, break and stop them."""
    yield from _factory()


@pytest.fixture(scope="module")
def platforms_of_module() -> Iterator[Callable[..., Platform]]:
    """The same, for platforms that the tests of a module share."""
    yield from _factory()


@pytest.fixture(scope="session")
def duration_ms() -> Callable[[Callable[[], object]], str]:
    """How long something takes here and now, as `x-request-timeout-ms` has it: a deadline that suits any machine.

    As long as a short answer takes is in the middle of one ten times as long, whatever the engine's speed.
    """

    def measured(action: Callable[[], object]) -> str:
        began = time.monotonic()
        action()
        return f"{(time.monotonic() - began) * 1000:.0f}"

    return measured


def _factory() -> Iterator[Callable[..., Platform]]:
    made: list[Platform] = []

    def make(**environment: str) -> Platform:
        made.append(_make(environment))
        return made[-1]

    yield make
    for each in made:
        _remove(each)


def _platforms_own(environment: Mapping[str, str]) -> Iterator[Platform]:
    platform = _make(environment)
    try:
        platform.up()
        yield platform
    finally:
        _remove(platform)


def _make(environment: Mapping[str, str]) -> Platform:
    root = Path(tempfile.mkdtemp(prefix="zooserve-e2e-"))
    return Platform(StateFolder(root), reserved_ports(1)[0], environment)


def _remove(platform: Platform) -> None:
    platform.down()
    shutil.rmtree(platform.folder.root, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test here is end to end; those of life and death come before the shared platform starts."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.e2e)
    items.sort(key=lambda item: item.path.is_relative_to(here) and not item.path.is_relative_to(here / "lifecycle"))


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[[type[BaseHTTPRequestHandler]], str]]:
    """Serves HTTP by a handler, and returns the base URL; all of them stop with the module."""
    servers: list[ThreadingHTTPServer] = []

    def start(handler: type[BaseHTTPRequestHandler]) -> str:
        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
