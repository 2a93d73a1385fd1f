"""A real Triton with stand-ins for NVIDIA's other chat contracts over the real engine, and a router in front of it."""

import asyncio
import json
import re
import shutil
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from zooserve.processes.ports import reserved_ports
from zooserve.settings import Settings
from zooserve.triton.installation import find_installation
from zooserve.triton.server import Addresses, TritonServer
from zooserve_router.app import create_app

ROOT = Path(__file__).parents[3]
STAND_INS = Path(__file__).parent / "stand_ins"
RECORDED = ROOT / "tests" / "router" / "backends" / "recorded"
LEAF = ROOT / "model_repository" / "leaf" / "tensorrt_llm" / "1"
SLOTS, CONTEXT = 2, 512
_PATIENCE_S = 60.0
_POLL_S = 0.05


def declared(tensors: dict[str, Any]) -> str:
    """Tensors as config.pbtxt spells them."""
    rows = [
        f'{{ name: "{name}", data_type: {tensor["type"]}, dims: {tensor["dims"]}'
        f"{', optional: true' if tensor.get('optional') else ''} }}"
        for name, tensor in tensors.items()
    ]
    return "[\n  " + ",\n  ".join(rows) + "\n]"


def place(repository: Path, name: str, code: str, contract: str, max_batch_size: int, **parameters: str) -> None:
    """A stand-in with exactly the tensors that were recorded of the real one."""
    version = repository / name / "1"
    version.mkdir(parents=True)
    shutil.copy(STAND_INS / f"{code}.py", version / "model.py")
    shutil.copy(STAND_INS / "real_engine.py", version)
    knobs = {"model": LEAF / "model.gguf", "slots": SLOTS, "context_per_slot": CONTEXT}
    (version / "model.yaml").write_text("".join(f"{key}: {value}\n" for key, value in knobs.items()))
    tensors = json.loads((RECORDED / f"{contract}.json").read_text())
    said = "".join(
        f'parameters {{ key: "{key}", value: {{ string_value: "{value}" }} }}\n' for key, value in parameters.items()
    )
    (version.parent / "config.pbtxt").write_text(
        f'name: "{name}"\nbackend: "python"\nmax_batch_size: {max_batch_size}\n'
        "model_transaction_policy { decoupled: true }\ninstance_group [ { count: 1, kind: KIND_CPU } ]\n"
        f"input {declared(tensors['inputs'])}\noutput {declared(tensors['outputs'])}\n{said}"
    )


def place_ensemble(repository: Path) -> None:
    """The front `ensemble` over the stand-in `tensorrt_llm`, which here takes the front's own names."""
    tensors = json.loads((RECORDED / "engine_path.json").read_text())
    maps = "".join(
        f'      {kind}_map {{ key: "{name}", value: "{name}" }}\n'
        for kind in ("input", "output")
        for name in tensors[f"{kind}s"]
    )
    folder = repository / "ensemble"
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(
        f'name: "ensemble"\nplatform: "ensemble"\nmax_batch_size: 8\ninput {declared(tensors["inputs"])}\n'
        f"output {declared(tensors['outputs'])}\nensemble_scheduling {{\n  step [\n    {{\n"
        f'      model_name: "tensorrt_llm"\n      model_version: -1\n{maps}    }}\n  ]\n}}\n'
    )


MODELS = {
    "vllm": ("vllm", "vllm_model"),
    "bls": ("tensorrt_llm", "tensorrt_llm_bls"),
    "ensemble": ("tensorrt_llm", "ensemble"),
}
ENGINES = {"vllm": "vllm_model", "bls": "tensorrt_llm_bls", "ensemble": "tensorrt_llm"}


def catalogue(address: str) -> str:
    """One chat model a contract, all at this Triton."""
    entries = [
        f"""
  - name: {name}
    task: chat
    runs_on: leaf
    triton: {{interactive: {triton_model}}}
    backend: {{kind: {kind}, leaves: ["{address}"]{", can: [json_schema]" if kind == "tensorrt_llm" else ""}}}
    tokenizer: leaf/tensorrt_llm/1/tokenizer.json
    chat_template: leaf/tensorrt_llm/1/chat_template.jinja
    default_system_prompt: You are a helpful assistant.
    limits: {{max_tokens: {CONTEXT}, max_completion_tokens: 400}}
    kv_budget_tokens: 4096
    licence: none
    source: a test
"""
        for name, (kind, triton_model) in MODELS.items()
    ]
    return "models:" + "".join(entries)


@dataclass(frozen=True)
class Fronts:
    """The router's address, and what the engines behind it work on."""

    url: str
    triton: TritonServer

    async def active(self, name: str) -> int:
        """Requests that the engine of this model works on."""
        page = await asyncio.to_thread(_page, self.triton.addresses.metrics)
        series = rf'nv_trt_llm_request_metrics{{model="{ENGINES[name]}"[^}}]*}} (\S+)'
        found = re.search(series, page)
        return int(float(found.group(1))) if found else 0

    async def until_active(self, name: str, count: int) -> None:
        """Wait until that many are; the test's own timeout bounds it."""
        while await self.active(name) != count:  # noqa: ASYNC110 - a page has no event
            await asyncio.sleep(_POLL_S)


def _page(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as page:
        return str(page.read().decode())


@pytest.fixture(scope="session")
def fronts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fronts]:
    """Triton with every stand-in, and a router over it."""
    folder = tmp_path_factory.mktemp("contracts")
    assert (LEAF / "model.gguf").is_file(), "no weights: run `zooserve fetch` first"
    repository = folder / "repository"
    place(repository, "vllm_model", "vllm_model", "vllm_backend", 0)
    place(repository, "tensorrt_llm_bls", "engine_path", "engine_path", 8, accumulate_tokens="true")
    place(repository, "tensorrt_llm", "engine_path", "engine_path", 8, cancellation_check_period_ms="100")
    place_ensemble(repository)
    installation = find_installation(folder / "cache", ROOT / "platform" / "triton-backends")
    addresses = Addresses("127.0.0.1", *reserved_ports(3))
    triton = TritonServer("contracts", installation, repository, addresses, folder / "triton.log")
    try:
        triton.start()
        triton.wait_until_loaded(180)
        with served(folder, addresses.grpc) as url:
            yield Fronts(url, triton)
    finally:
        triton.stop(5)


@contextmanager
def served(folder: Path, address: str) -> Iterator[str]:
    """A router over these models, under uvicorn in a thread of this process."""
    (folder / "zoo.yaml").write_text(catalogue(address))
    settings = Settings(
        catalogue=folder / "zoo.yaml",
        models="all",
        repository=ROOT / "model_repository",
        state_dir=folder / "state",
    )
    (port,) = reserved_ports(1)
    server = uvicorn.Server(uvicorn.Config(create_app(settings), port=port, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until_ready(f"http://127.0.0.1:{port}")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(30)


def wait_until_ready(url: str) -> None:
    """Until every model has answered its probe."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        try:
            answers = [httpx.post(f"{url}/v1/chat/completions", json=question(name, max_tokens=1)) for name in MODELS]
        except httpx.TransportError:
            answers = []
        if answers and all(answer.status_code == 200 for answer in answers):
            return
        time.sleep(_POLL_S)
    raise AssertionError(f"not ready within {_PATIENCE_S} s: {[answer.text for answer in answers]}")


def question(model: str, content: str = "What is the capital of France?", **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": content}], "temperature": 0, **fields}


@pytest.fixture
def ask() -> Any:
    """The body of a chat request."""
    return question
