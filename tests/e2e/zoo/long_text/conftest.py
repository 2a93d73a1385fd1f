"""The committed stage for long texts in a real Triton, over an encoder whose vectors, pace and faults are known."""

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from zooserve.triton.server import TritonServer

ZOO = Path(__file__).parents[4] / "model_repository" / "zoo"
CLS, SEP, POISON = 2, 3, 13

ENCODER = '''"""Counts which words its rows have; sleeps for each row; refuses token 13."""

import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        ids = pb_utils.get_input_tensor_by_name(request, "input_ids").as_numpy()
        mask = pb_utils.get_input_tensor_by_name(request, "attention_mask").as_numpy()
        if (ids == 13).any():
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("unlucky"))
        time.sleep(len(ids) * (0.1 if (ids == 7).any() else 0.0005))
        vectors = np.stack([np.bincount(row[kept > 0], minlength=384) for row, kept in zip(ids, mask)])
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return pb_utils.InferenceResponse([pb_utils.Tensor("sentence_embedding", unit.astype(np.float32))])
'''
CONFIG = """
name: "embed_encoder"
backend: "python"
max_batch_size: 64
input [
  { name: "input_ids" data_type: TYPE_INT64 dims: [ -1 ] },
  { name: "attention_mask" data_type: TYPE_INT64 dims: [ -1 ] }
]
output [ { name: "sentence_embedding" data_type: TYPE_FP32 dims: [ 384 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
dynamic_batching {
  default_queue_policy {
    timeout_action: REJECT default_timeout_microseconds: 600000000 allow_timeout_override: true
  }
}
"""


def expected_vector(ids: list[int]) -> npt.NDArray[Any]:
    """What the stage should answer for these tokens, from its definition alone."""
    total = np.zeros(384)
    for start in range(0, len(ids), 254):
        window = ids[start : start + 254]
        counts = np.bincount([CLS, *window, SEP], minlength=384)
        total += len(window) * counts / np.linalg.norm(counts)
    return total / np.linalg.norm(total)


def write_repository(root: Path) -> Path:
    """The encoder above, and the committed stage with a vocabulary of one token per word."""
    (root / "embed_encoder" / "1").mkdir(parents=True)
    (root / "embed_encoder" / "config.pbtxt").write_text(CONFIG)
    (root / "embed_encoder" / "1" / "model.py").write_text(ENCODER)
    (root / "embed_long" / "1").mkdir(parents=True)
    for file in ("config.pbtxt", "1/model.py"):
        shutil.copy(ZOO / "embed_long" / file, root / "embed_long" / file)
    words = {"[PAD]": 0, "[UNK]": 1, "[CLS]": CLS, "[SEP]": SEP} | {f"w{number}": number for number in range(4, 384)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)]
    )
    tokenizer.enable_truncation(128)  # as the real file has it: the stage must not be fooled by it
    tokenizer.save(str(root / "embed_long" / "1" / "tokenizer.json"))
    return root


@dataclass
class Receiver:
    """Takes Triton's spans over OTLP/HTTP, which it writes as JSON."""

    address: str
    spans: list[dict[str, Any]] = field(default_factory=list)


@pytest.fixture(scope="session")
def receiver() -> Iterator[Receiver]:
    """A receiver on a free port."""
    received: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            for resource in body["resourceSpans"]:
                for scope in resource["scopeSpans"]:
                    received.extend(scope["spans"])
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *words: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Receiver(f"http://127.0.0.1:{server.server_port}/v1/traces", received)
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def shelf(start_zoo: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Any:
    """A running server over them; it sends the spans of requests that bring a trace context to the receiver."""
    settings = ("level=TIMESTAMPS", "rate=1000000", "mode=opentelemetry", f"opentelemetry,url={receiver.address}")

    class Traced(TritonServer):
        def command(self) -> list[str]:
            return [*super().command(), *(f"--trace-config={setting}" for setting in settings)]

    return start_zoo("shelf", write_repository(tmp_path_factory.mktemp("shelf")), Traced)


@pytest.fixture(name="expected_vector")
def _expected_vector() -> Any:
    return expected_vector
