"""A real Triton over the leaf's model with a small engine, asked over gRPC streams."""

import asyncio
import shutil
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc.aio as triton
from tritonclient.grpc import InferInput

from zooserve.leaf.contract import INPUTS, MODEL_NAME, parse_number
from zooserve.leaf.metrics import LeafLoad, load_in
from zooserve.processes.ports import reserved_ports
from zooserve.triton.installation import find_installation
from zooserve.triton.server import Addresses, TritonServer

ROOT = Path(__file__).parents[3]
MODEL = ROOT / "model_repository" / "leaf" / MODEL_NAME
SLOTS, MAX_WAITING = 4, 2
NUMPY = {"BYTES": np.object_, "BOOL": np.bool_, "FP32": np.float32, "INT32": np.int32, "UINT64": np.uint64}


def tensors(asked: dict[str, Any]) -> list[InferInput]:
    """The input tensors of a request given as plain values."""
    made = []
    for name, value in asked.items():
        values = value if isinstance(value, list) else [value]
        values = [each.encode() if isinstance(each, str) else each for each in values]
        array = np.array(values, dtype=NUMPY[INPUTS[name].datatype])
        made.append(InferInput(name, list(array.shape), INPUTS[name].datatype))
        made[-1].set_data_from_numpy(array)
    return made


@dataclass(frozen=True)
class Response:
    """One message of a stream: its outputs as text, or its error."""

    outputs: dict[str, str]
    final: bool
    error: str | None = None

    @property
    def text(self) -> str:
        """The whole text so far."""
        return self.outputs["text_output"]

    def number(self, name: str) -> float:
        """An output read as a number."""
        value = parse_number(self.outputs[name])
        assert value is not None, f"{name} is None"
        return value


def response(result: Any, error: Any) -> Response:
    """What the client got, told plainly."""
    if error is not None:
        return Response({}, final=True, error=error.message())
    message = result.get_response()
    outputs = {output.name: result.as_numpy(output.name)[0].decode() for output in message.outputs}
    return Response(outputs, final=message.parameters["triton_final_response"].bool_param)


class Leaf:
    """A running server with the leaf on it."""

    def __init__(self, server: TritonServer) -> None:
        self.server = server

    @staticmethod
    def prompt(question: str) -> str:
        """A rendered prompt, as the router sends it."""
        system = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        return f"{system}<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"

    async def stream(self, request_id: str = "", **asked: Any) -> AsyncIterator[Response]:
        """A request's responses as they come; closing the iterator hangs up."""

        async def requests() -> AsyncIterator[dict[str, Any]]:
            yield {
                "model_name": MODEL_NAME,
                "inputs": tensors(asked),
                "request_id": request_id,
                "enable_empty_final_response": True,
            }

        async with triton.InferenceServerClient(self.server.addresses.grpc) as client:
            call = client.stream_infer(requests())
            try:
                async for result, error in call:
                    yield response(result, error)
            finally:
                call.cancel()

    async def all(self, request_id: str = "", **asked: Any) -> list[Response]:
        """Every response of a request."""
        return [each async for each in self.stream(request_id, **asked)]

    async def answer(self, question: str, **asked: Any) -> str:
        """The answer alone, not streamed."""
        asked.setdefault("sampling_param_max_tokens", 16)
        asked.setdefault("sampling_param_exclude_input_from_output", True)
        (only,) = await self.all(text_input=self.prompt(question), **asked)
        assert only.error is None, only.error
        return only.text

    async def load(self) -> LeafLoad:
        """What the metrics page says."""
        return load_in(await asyncio.to_thread(self._page))

    async def until(self, holds: Callable[[LeafLoad], bool]) -> LeafLoad:
        """Poll the metrics page until it holds; the test's own timeout bounds it."""
        while not holds(load := await self.load()):  # noqa: ASYNC110 - a page has no event
            await asyncio.sleep(0.05)
        return load

    def _page(self) -> str:
        with urllib.request.urlopen(f"http://{self.server.addresses.metrics}/metrics", timeout=20) as page:
            return page.read().decode()


@pytest.fixture(scope="session")
def start_leaf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Leaf]]:
    """Starts a server over the committed model with few slots; all of them stop with the session.

    Another config.pbtxt may stand in for the model's own.
    """
    folder = tmp_path_factory.mktemp("leaf")
    assert (MODEL / "1" / "model.gguf").is_file(), "no weights: run `zooserve fetch` first"
    knobs = {"model": MODEL / "1" / "model.gguf", "slots": SLOTS, "context_per_slot": 1024, "max_waiting": MAX_WAITING}
    with ExitStack() as stack:

        def start(name: str, config: Path = MODEL / "config.pbtxt") -> Leaf:
            version = folder / name / MODEL_NAME / "1"
            version.mkdir(parents=True)
            shutil.copy(config, version.parent / "config.pbtxt")
            shutil.copy(MODEL / "1" / "model.py", version)
            (version / "model.yaml").write_text("".join(f"{name}: {value}\n" for name, value in knobs.items()))
            installation = find_installation(folder / "cache", ROOT / "platform" / "triton-backends")
            addresses = Addresses("127.0.0.1", *reserved_ports(3))
            server = TritonServer(name, installation, version.parents[1], addresses, folder / f"{name}.log")
            stack.callback(server.stop, 15)
            server.start()
            server.wait_until_loaded(120)
            return Leaf(server)

        yield start


@pytest.fixture(scope="session")
def leaf(start_leaf: Callable[[str], Leaf]) -> Leaf:
    """One leaf for the tests that leave it well."""
    return start_leaf("leaf")
