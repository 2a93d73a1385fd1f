"""A real Triton over the committed zoo, started once, and the means to start one over another repository."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tritonclient.http

from zooserve.processes.ports import reserved_ports
from zooserve.triton.installation import find_installation
from zooserve.triton.server import Addresses, TritonServer

ROOT = Path(__file__).parents[3]
REPOSITORY = ROOT / "model_repository" / "zoo"
Arrays = dict[str, npt.NDArray[Any]]
STOP_S = 2
"""Nobody asks any more: what has not stopped by itself then is ended. Some hang in their shutdown for good."""


class Zoo:
    """A running server, asked with Triton's own HTTP client."""

    def __init__(self, server: TritonServer) -> None:
        self.server = server
        self._local = threading.local()

    @property
    def client(self) -> tritonclient.http.InferenceServerClient:
        """One client per thread: tritonclient's must not be shared."""
        if not hasattr(self._local, "client"):
            self._local.client = tritonclient.http.InferenceServerClient(self.server.addresses.http)
        return self._local.client

    def close(self) -> None:
        """Close this thread's client."""
        if hasattr(self._local, "client"):
            self._local.client.close()
            del self._local.client

    def infer(self, model: str, inputs: Arrays, outputs: Sequence[str], **options: Any) -> Arrays:
        """The named outputs of one inference."""
        tensors = []
        for name, array in inputs.items():
            datatype = tritonclient.http.np_to_triton_dtype(array.dtype) if array.dtype != object else "BYTES"
            tensors.append(tritonclient.http.InferInput(name, array.shape, datatype))
            tensors[-1].set_data_from_numpy(array)
        wanted = [tritonclient.http.InferRequestedOutput(name) for name in outputs]
        answer = self.client.infer(model, tensors, outputs=wanted, **options)
        return {name: answer.as_numpy(name) for name in outputs}

    def ask(self, model: str, texts: Sequence[str | bytes], outputs: Sequence[str], **options: Any) -> Arrays:
        """The named outputs for some texts."""
        rows = [[text if isinstance(text, bytes) else text.encode()] for text in texts]
        return self.infer(model, {"text": np.array(rows, object)}, outputs, **options)

    def at_once(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """What each call returns or raises, all sent at the same time."""
        barrier = threading.Barrier(len(calls))

        def outcome(call: Callable[[], Any]) -> Any:
            barrier.wait()
            try:
                return call()
            except Exception as exc:
                return exc
            finally:
                self.close()

        with ThreadPoolExecutor(len(calls)) as pool:
            return list(pool.map(outcome, calls))

    def eventually(self, holds: Callable[[], bool], timeout_s: float = 30.0) -> None:
        """Ask until it holds; the test fails when it does not in time."""
        deadline = time.monotonic() + timeout_s
        while not holds():
            assert time.monotonic() < deadline, "did not hold in time"
            time.sleep(0.05)

    def statistics(self, model: str) -> dict[str, Any]:
        """Triton's counters of a model."""
        return self.client.get_inference_statistics(model)["model_stats"][0]

    def state(self, model: str) -> tuple[str, str]:
        """The index's word on a model, and its reason."""
        index = {entry["name"]: entry for entry in self.client.get_model_repository_index()}
        return index[model].get("state", ""), index[model].get("reason", "")


Start = Callable[..., Zoo]


@pytest.fixture(scope="session")
def start_zoo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts a server over a repository; all of them stop with the session."""
    folder = tmp_path_factory.mktemp("tritons")
    with ExitStack() as stack:

        def start(name: str, repository: Path, kind: type[TritonServer] = TritonServer, **options: Any) -> Zoo:
            installation = find_installation(folder / "cache", ROOT / "platform" / "triton-backends")
            addresses = Addresses("127.0.0.1", *reserved_ports(3))
            server = kind(name, installation, repository, addresses, folder / f"{name}.log", **options)
            stack.callback(server.stop, STOP_S)
            server.start()
            server.wait_until_loaded(180)
            started = Zoo(server)
            stack.callback(started.close)
            return started

        yield start


@pytest.fixture(scope="session")
def zoo(start_zoo: Start) -> Zoo:
    """The zoo as committed, with its real weights."""
    assert (REPOSITORY / "embed_encoder/1/model.onnx").is_file(), "no weights: run `zooserve fetch` first"
    return start_zoo("zoo", REPOSITORY)
