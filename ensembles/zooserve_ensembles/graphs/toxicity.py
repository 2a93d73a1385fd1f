"""The toxicity classifier's graph, written from its Keras weights: BiLSTM, max over time, two dense layers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from onnx import NodeProto, TensorProto

__all__ = ["LENGTH", "build"]

LENGTH = 100
"""Ids per text; the model was trained on texts padded on the left to this length, and has no mask."""

Weights = Mapping[str, "np.ndarray[Any, Any]"]


def build(inputs: Mapping[str, Path]) -> bytes:
    """The graph `input_ids` [batch, 100] -> `probabilities` [batch, 6] from `model.weights.h5`."""
    import onnx
    from onnx import TensorProto, helper

    weights = _read(inputs["model.weights.h5"])
    labels = weights["dense_1/vars/1"].shape[0]
    graph = helper.make_graph(
        _nodes(hidden=weights["bidirectional/forward_layer/cell/vars/1"].shape[0]),
        "toxicity",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", LENGTH])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", labels])],
        _initializers(weights),
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    content: bytes = model.SerializeToString()
    return content


def _read(file: Path) -> Weights:
    """Every layer's arrays by their path below `layers/`; the optimizer's state is left alone."""
    import h5py

    weights: dict[str, np.ndarray[Any, Any]] = {}

    def keep(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            weights[name] = item[()]

    with h5py.File(file) as document:
        document["layers"].visititems(keep)
    return weights


def _nodes(hidden: int) -> Sequence["NodeProto"]:
    from onnx.helper import make_node

    lstm = make_node(
        "LSTM",
        ["lstm/x", "lstm/kernel", "lstm/recurrent", "lstm/bias"],
        ["lstm/y"],
        direction="bidirectional",
        hidden_size=hidden,
    )
    return [
        make_node("Gather", ["embedding", "input_ids"], ["embedded"]),
        make_node("Transpose", ["embedded"], ["lstm/x"], perm=[1, 0, 2]),
        lstm,
        # The maximum over time, for each direction: [length, 2, batch, hidden] -> [2, batch, hidden].
        make_node("ReduceMax", ["lstm/y"], ["maximum"], axes=[0], keepdims=0),
        make_node("Transpose", ["maximum"], ["by_row"], perm=[1, 0, 2]),
        make_node("Flatten", ["by_row"], ["features"], axis=1),
        make_node("Gemm", ["features", "dense/kernel", "dense/bias"], ["dense"]),
        make_node("Relu", ["dense"], ["activated"]),
        make_node("Gemm", ["activated", "labels/kernel", "labels/bias"], ["logits"]),
        make_node("Sigmoid", ["logits"], ["probabilities"]),
    ]


def _initializers(weights: Weights) -> Sequence["TensorProto"]:
    import numpy as np
    from onnx.numpy_helper import from_array

    directions = [f"bidirectional/{side}_layer/cell/vars" for side in ("forward", "backward")]
    biases = [_gates(weights[f"{side}/2"]) for side in directions]
    arrays = {
        "embedding": weights["embedding/vars/0"],
        "lstm/kernel": np.stack([_gates(weights[f"{side}/0"]).T for side in directions]),
        "lstm/recurrent": np.stack([_gates(weights[f"{side}/1"]).T for side in directions]),
        # ONNX adds two biases, one per product; Keras has one.
        "lstm/bias": np.stack([np.concatenate([bias, np.zeros_like(bias)]) for bias in biases]),
        "dense/kernel": weights["dense/vars/0"],
        "dense/bias": weights["dense/vars/1"],
        "labels/kernel": weights["dense_1/vars/0"],
        "labels/bias": weights["dense_1/vars/1"],
    }
    return [from_array(np.ascontiguousarray(array, dtype=np.float32), name) for name, array in arrays.items()]


def _gates(array: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Keras lays the gates out as input, forget, cell, output; ONNX as input, output, forget, cell."""
    import numpy as np

    given_in, forget, cell, out = np.split(array, 4, axis=-1)
    return np.concatenate([given_in, out, forget, cell], axis=-1)
