"""The prompt-injection head: a logistic regression over a sentence embedding, as a graph."""

import json
from collections.abc import Mapping
from pathlib import Path

__all__ = ["HEAD", "build"]

HEAD = Path(__file__).parent.parent / "heads" / "injection.json"
"""The trained head, committed; `ensembles/training/injection_head.py` makes it and records its quality in it."""


def build(inputs: Mapping[str, Path]) -> bytes:
    """The graph `sentence_embedding` [batch, width] -> `injection_probability` [batch, 1] and `embedding`, its input.

    Triton 2.51 answers "unexpected deadlock" when a caller asks for some of an ensemble's outputs and one of them is
    also a step's input: what goes in comes out again under its own name.
    """
    import numpy as np
    import onnx
    from onnx import TensorProto, helper
    from onnx.numpy_helper import from_array

    head = json.loads(inputs.get("injection.json", HEAD).read_text(encoding="utf-8"))
    weights = np.asarray(head["weights"], dtype=np.float32).reshape(-1, 1)
    bias = np.asarray([head["bias"]], dtype=np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["sentence_embedding", "weights", "bias"], ["logit"]),
            helper.make_node("Sigmoid", ["logit"], ["injection_probability"]),
            helper.make_node("Identity", ["sentence_embedding"], ["embedding"]),
        ],
        "injection_head",
        [helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", len(weights)])],
        [
            helper.make_tensor_value_info("injection_probability", TensorProto.FLOAT, ["batch", 1]),
            helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", len(weights)]),
        ],
        [from_array(weights, "weights"), from_array(bias, "bias")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    content: bytes = model.SerializeToString()
    return content
