"""The engine server alone, and a router over it in this process: seconds to start, and no platform needed."""

import json
import secrets
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from ruamel.yaml import YAML

from zooserve.engine.orders import EngineOrders
from zooserve.engine.server import EngineServer
from zooserve.processes.ports import reserved_ports
from zooserve.settings import EngineServerSettings, Settings
from zooserve_router.app import create_app

ROOT = Path(__file__).parents[3]
REPOSITORY = ROOT / "model_repository"
SLOTS = 4
_PATIENCE_S = 60.0


class RunningEngine:
    """llama.cpp's own OpenAI server over the committed model, with four slots of 1,024 tokens."""

    def __init__(self, server: EngineServer) -> None:
        self.server = server

    @property
    def url(self) -> str:
        """Its OpenAI API, with `/v1`."""
        return f"http://{self.server.address}/v1"

    @property
    def key(self) -> str:
        """What it asks of its callers."""
        return self.server.orders.key

    def page(self, path: str) -> str:
        """GET a path of the server (not of `/v1`)."""
        url = f"http://{self.server.address}{path}"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self.key}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.read().decode()

    def ask(self, path: str) -> Any:
        """The same, parsed."""
        return json.loads(self.page(path))

    def metric(self, name: str) -> float:
        """One of its metrics, such as `tokens_predicted_total`."""
        (line,) = [line for line in self.page("/metrics").splitlines() if line.startswith(f"llamacpp:{name} ")]
        return float(line.split()[1])

    def busy_slots(self) -> int:
        """How many slots work on something."""
        return sum(slot["is_processing"] for slot in self.ask("/slots"))


@dataclass(frozen=True)
class RunningRouter:
    """A router over the engine, under uvicorn in a thread of this process."""

    url: str
    """Base address, without `/v1` and without a slash at the end."""
    engine: RunningEngine
    model: str = "chat_json"


def engine_over(folder: Path) -> EngineServer:
    """An engine server that is not started yet."""
    settings = EngineServerSettings(
        port=reserved_ports(1)[0], key=secrets.token_hex(8), slots=SLOTS, context_per_slot=1024
    )
    orders = EngineOrders.of(settings, REPOSITORY, ["chat_json"])
    assert orders.gguf.is_file(), "no weights: run `zooserve fetch` first"
    return EngineServer(orders, folder / "engine.json", folder / "engine.log")


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    """The engine server alone; it starts in about a second, and tests that break it start it again."""
    server = engine_over(tmp_path_factory.mktemp("engine"))
    server.start()
    try:
        server.wait_until_loaded(_PATIENCE_S)
        yield RunningEngine(server)
    finally:
        server.stop(5)


@pytest.fixture(scope="session")
def upstream_router(engine: RunningEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRouter]:
    """A router in this process whose one model, `chat_json`, is the engine as an upstream (`runs_on: upstream`).

    Its catalogue entry is the committed one of `chat_json`, with a `url` instead of `runs_on: engine`. Point any HTTP
    client at `upstream_router.url`; `upstream_router.engine` tells what the engine works on.
    """
    with _routed(engine, tmp_path_factory.mktemp("upstream-router")) as router:
        yield router


@pytest.fixture
def routed(engine: RunningEngine, tmp_path: Path) -> Callable[..., AbstractContextManager[RunningRouter]]:
    """Starts such a router of a test's own, with other settings: `with routed(tracing=...) as router`."""
    return partial(_routed, engine, tmp_path)


@contextmanager
def _routed(engine: RunningEngine, folder: Path, **others: Any) -> Iterator[RunningRouter]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEST_ENGINE_KEY", engine.key)
        settings = Settings(
            catalogue=_catalogue(folder, engine),
            models="all",
            repository=REPOSITORY,
            state_dir=folder / "state",
            **others,
        )
        with _served(settings) as url:
            yield RunningRouter(url, engine)


def _catalogue(folder: Path, engine: RunningEngine) -> Path:
    """The committed entry of `chat_json`, alone in a file, asked at the engine's address."""
    yaml = YAML(typ="safe")
    entries = yaml.load((ROOT / "zoo.yaml").read_text(encoding="utf-8"))["models"]
    entry = next(entry for entry in entries if entry["name"] == "chat_json")
    backend = {**entry["backend"], "url": engine.url, "key_env": "TEST_ENGINE_KEY"}
    limits = {**entry["limits"], "max_tokens": 1024}
    file = folder / "zoo.yaml"
    with file.open("w", encoding="utf-8") as out:
        yaml.dump({"models": [{**entry, "runs_on": "upstream", "backend": backend, "limits": limits}]}, out)
    return file


@contextmanager
def _served(settings: Settings) -> Iterator[str]:
    """The router of these settings under uvicorn in a thread; its base address, once its model is ready."""
    (port,) = reserved_ports(1)
    config = uvicorn.Config(create_app(settings), host="127.0.0.1", port=port, log_level="warning")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="upstream-router")
    thread.start()
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_ready(url)
        yield url
    finally:
        server.should_exit = True
        thread.join(_PATIENCE_S)


def _wait_until_ready(url: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    answer = "no answer yet"
    while time.monotonic() < deadline:
        try:
            models = httpx.get(f"{url}/health/ready", timeout=5).json()["models"]
        except httpx.TransportError:
            models = []
        if models and all(model["ready"] for model in models):
            return
        answer = str(models)
        time.sleep(0.05)
    pytest.fail(f"the router's model is not ready: {answer}")
