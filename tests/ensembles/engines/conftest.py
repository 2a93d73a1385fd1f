"""A small Triton repository with an encoder, its tokenizer and golden vectors; and a builder that needs no GPU."""

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers

from zooserve_ensembles.engines.builder import Order
from zooserve_ensembles.engines.identity import Gpu, Machine

WORDS = ["[UNK]", "a", "river", "runs", "through", "the", "old", "town", "and", "nobody", "remembers", "its", "name"]
TEXTS = ["a river", "the old town", "nobody remembers its name", "a river runs through the old town and nobody"]
WIDTH = 8

CONFIG = """# By hand, for tests.
name: "small_encoder"
backend: "onnxruntime"
max_batch_size: 4
input [
  { name: "input_ids" data_type: TYPE_INT64 dims: [ -1 ] },
  { name: "attention_mask" data_type: TYPE_INT64 dims: [ -1 ] }
]
output [ { name: "sentence_embedding" data_type: TYPE_FP32 dims: [ 8 ] } ]
instance_group [ { count: 1 kind: KIND_GPU } ]
model_warmup [
  { name: "bucket_4" batch_size: 1
    inputs { key: "input_ids" value { data_type: TYPE_INT64 dims: [ 4 ] zero_data: true } }
    inputs { key: "attention_mask" value { data_type: TYPE_INT64 dims: [ 4 ] zero_data: true } } },
  { name: "bucket_16" batch_size: 1
    inputs { key: "input_ids" value { data_type: TYPE_INT64 dims: [ 16 ] zero_data: true } }
    inputs { key: "attention_mask" value { data_type: TYPE_INT64 dims: [ 16 ] zero_data: true } } }
]
"""
ENSEMBLE = """name: "small"
platform: "ensemble"
max_batch_size: 4
input [ { name: "text" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "embedding" data_type: TYPE_FP32 dims: [ 8 ] } ]
ensemble_scheduling { step [
  { model_name: "small_tokenizer" model_version: 1 input_map { key: "text" value: "text" }
    output_map { key: "input_ids" value: "ids" } output_map { key: "attention_mask" value: "mask" } },
  { model_name: "small_encoder" model_version: 1
    input_map { key: "input_ids" value: "ids" } input_map { key: "attention_mask" value: "mask" }
    output_map { key: "sentence_embedding" value: "embedding" } }
] }
"""
TOKENIZER = """name: "small_tokenizer"
backend: "python"
max_batch_size: 4
parameters { key: "buckets" value: { string_value: "4,16" } }
"""


class OnnxRuntimeBuilder:
    """A builder whose plan is the graph itself, run by ONNX Runtime: real numbers, no GPU."""

    version = "10.14.1.48"

    def __init__(self) -> None:
        self.orders: list[Order] = []

    def build(self, order: Order) -> bytes:
        self.orders.append(order)
        return order.graph

    @contextmanager
    def loaded(self, plan: bytes) -> Iterator["_Session"]:
        yield _Session(onnxruntime.InferenceSession(plan), self.orders[-1])


class _Session:
    def __init__(self, session: Any, order: Order) -> None:
        self._session, self._order = session, order

    def run(self, profile: int, inputs: Mapping[str, npt.NDArray[Any]]) -> Mapping[str, npt.NDArray[Any]]:
        shape = self._order.profiles[profile]
        assert all(array.shape[1] == shape.length and array.shape[0] <= shape.max_batch for array in inputs.values())
        return dict(zip(self._order.outputs, self._session.run(list(self._order.outputs), dict(inputs)), strict=True))


def attention_model(*, fused: bool = True, operation: str = "MultiHeadAttention", scale: float | None = 0.5) -> bytes:
    """An encoder of one attention layer over random word vectors, mean pooled over the tokens that are no padding."""
    node = helper.make_node
    attributes: dict[str, Any] = {"num_heads": 2} | ({} if scale is None else {"scale": scale})
    layer = (
        [
            node(
                operation,
                ["x", "x", "x", "", "", "bias"],
                ["a"],
                name="attention",
                domain="com.microsoft",
                **attributes,
            )
        ]
        if fused
        else [node("Identity", ["x"], ["a"])]
    )
    nodes = [
        node("Gather", ["table", "input_ids"], ["x"]),
        node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["mask", "axes_1_2"], ["wide"]),
        node("Sub", ["one", "wide"], ["absent"]),
        node("Mul", ["absent", "masked"], ["narrow"]),
        # ONNX Runtime's fused operator broadcasts a bias over rows and heads, not over a row's own length.
        node("Unsqueeze", ["mask", "axes_1_3"], ["tall"]),
        node("Mul", ["tall", "zero"], ["nothing"]),
        node("Add", ["narrow", "nothing"], ["bias"]),
        *layer,
        node("Unsqueeze", ["mask", "axis_2"], ["weights"]),
        node("Mul", ["a", "weights"], ["kept"]),
        node("ReduceSum", ["kept", "axis_1"], ["sum"], keepdims=0),
        node("ReduceL2", ["sum", "axis_1"], ["norm"], keepdims=1),
        node("Div", ["sum", "norm"], ["sentence_embedding"]),
        node("Identity", ["a"], ["token_embeddings"]),
    ]
    constants: dict[str, Any] = {
        "table": np.random.default_rng(3).standard_normal((len(WORDS), WIDTH)).astype(np.float32),
        "axes_1_2": np.array([1, 2]),
        "axes_1_3": np.array([1, 3]),
        "axis_1": np.array([1]),
        "axis_2": np.array([2]),
        "one": np.float32(1),
        "zero": np.float32(0),
        "masked": np.float32(-10_000),
    }
    tokens = ["batch", "length"]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info(name, TensorProto.INT64, tokens) for name in ("input_ids", "attention_mask")],
        [
            helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", WIDTH]),
            helper.make_tensor_value_info("token_embeddings", TensorProto.FLOAT, [*tokens, WIDTH]),
        ],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    content: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return content


@pytest.fixture
def model_bytes() -> Any:
    return attention_model


@pytest.fixture
def builder() -> OnnxRuntimeBuilder:
    return OnnxRuntimeBuilder()


@pytest.fixture
def machine() -> Machine:
    return Machine((Gpu("NVIDIA H200", "9.0"),), "10.14.1.48", "26.02", "580.159.04")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """`small` (tokenizer, encoder) under models/, golden vectors of the true graph under golden/."""
    root = tmp_path / "models"
    for name, text in (("small_encoder", CONFIG), ("small", ENSEMBLE), ("small_tokenizer", TOKENIZER)):
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(text)
    (root / "small_encoder" / "1" / "model.onnx").write_bytes(attention_model())
    made = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.save(str(root / "small_tokenizer" / "1" / "tokenizer.json"))
    (tmp_path / "golden").mkdir()
    (tmp_path / "golden" / "small.json").write_text(json.dumps({"rows": [_row(made, text) for text in TEXTS]}))
    return root


def _row(tokenizer: Any, text: str) -> dict[str, str]:
    ids = np.array([tokenizer.encode(text).ids])
    session = onnxruntime.InferenceSession(attention_model())
    (vector,) = session.run(["sentence_embedding"], {"input_ids": ids, "attention_mask": np.ones_like(ids)})
    return {"text": text, "vector": base64.b64encode(vector.astype("<f4").tobytes()).decode()}
