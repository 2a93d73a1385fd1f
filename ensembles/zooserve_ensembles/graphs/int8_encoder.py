"""The sentence encoder with its matrices in 8-bit integers, each token's row scaled by itself.

ONNX Runtime's own dynamic quantisation scales activations over the whole batch, so a text's vector depends on its
batch-mates. Here a row has a scale of its own, which costs two passes over the result and makes every row's integers
its own affair. Weights take 7 of the 8 bits: x86 processors without VNNI add products in pairs in 16 bits, which
saturate at 8, and a space must not depend on the machine that embeds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

from zooserve_ensembles.graphs import sentence_encoder
from zooserve_ensembles.graphs.writing import Graph

__all__ = ["build", "quantise"]

WEIGHT_STEPS, ROW_STEPS, TABLE_STEPS = 63, 127, 127
"""Integers on either side of zero."""
ZERO = 128
"""What zero is among the unsigned bytes of a row."""
SMALLEST_STEP = 1e-12

Array = npt.NDArray[Any]


def build(inputs: Mapping[str, Path]) -> bytes:
    """`input_ids` and `attention_mask` to `sentence_embedding`, from what `sentence_encoder` is built from."""
    model = onnx.load_from_string(sentence_encoder.build(inputs))
    del model.graph.output[1:]  # token vectors: no reranker takes them in this precision
    quantise(model)
    onnx.checker.check_model(model, full_check=True)
    content: bytes = model.SerializeToString()
    return content


def quantise(model: ModelProto) -> None:
    """Replace every product with a constant matrix, and the table that `input_ids` is looked up in."""
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    graph = Graph("int8")
    rows: dict[str, Row] = {}
    for node in model.graph.node:
        if node.op_type == "MatMul" and node.input[1] in weights:
            given, name = node.input
            if given not in rows:
                rows[given] = _quantised_rows(graph, given)
            _multiply(graph, rows[given], given, name, numpy_helper.to_array(weights[name]), node.output[0])
        elif node.op_type == "Gather" and node.input[1] == "input_ids" and node.input[0] in weights:
            _gather(graph, node.input[0], numpy_helper.to_array(weights[node.input[0]]), node.output[0])
        else:
            graph.extend([node], [])
    _replace(model, graph)


@dataclass(frozen=True)
class Row:
    """Activations as unsigned bytes [rows, width], and the step of each row [rows, 1]."""

    digits: str
    steps: str


def _replace(model: ModelProto, graph: Graph) -> None:
    used = {name for node in graph.nodes for name in node.input}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in used]
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.extend(graph.nodes)
    model.graph.initializer.extend([*kept, *graph.constants.values()])
    if all(opset.domain != "com.microsoft" for opset in model.opset_import):
        model.opset_import.append(helper.make_opsetid("com.microsoft", 1))


def _quantised_rows(graph: Graph, given: str) -> Row:
    name = f"{given}/int8"
    axis = graph.constant("int8/last_axis", [1], np.int64)
    width = graph.node("Shape", [given], f"{name}/width", start=-1)
    flat_shape = graph.node("Concat", [graph.constant("int8/rows", [-1], np.int64), width], f"{name}/shape", axis=0)
    flat = graph.node("Reshape", [given, flat_shape], f"{name}/flat")
    highest = graph.node("ReduceMax", [flat, axis], f"{name}/highest", keepdims=0)
    lowest = graph.node("ReduceMin", [flat, axis], f"{name}/lowest", keepdims=0)
    reach = graph.node("Max", [highest, graph.node("Neg", [lowest], f"{name}/depth")], f"{name}/reach")
    step = graph.node("Mul", [reach, graph.constant("int8/per_step", 1 / ROW_STEPS)], f"{name}/step")
    step = graph.node("Max", [step, graph.constant("int8/smallest_step", SMALLEST_STEP)], f"{name}/positive_step")
    zero = helper.make_tensor("value", TensorProto.UINT8, [1], [ZERO])
    zeros = graph.node("ConstantOfShape", [graph.node("Shape", [step], f"{name}/count")], f"{name}/zeros", value=zero)
    digits = graph.node("QuantizeLinear", [flat, step, zeros], f"{name}/digits", axis=0)
    return Row(digits, graph.node("Unsqueeze", [step, axis], f"{name}/steps"))


def _multiply(graph: Graph, row: Row, given: str, name: str, weight: Array, output: str) -> None:
    steps = np.maximum(np.abs(weight).max(axis=0), SMALLEST_STEP) / WEIGHT_STEPS
    digits = graph.constant(f"{name}/digits", np.rint(weight / steps), np.int8)
    inputs = [
        row.digits,
        digits,
        graph.constant("int8/one", 1),
        graph.constant(f"{name}/steps", steps),
        graph.constant("int8/zero", ZERO, np.uint8),
    ]
    product = graph.node("MatMulIntegerToFloat", inputs, f"{output}/in_steps", domain="com.microsoft")
    product = graph.node("Mul", [product, row.steps], f"{output}/rows")
    front = graph.node("Shape", [given], f"{output}/front", end=-1)
    width = graph.constant(f"int8/width_{weight.shape[1]}", [weight.shape[1]], np.int64)
    graph.node("Reshape", [product, graph.node("Concat", [front, width], f"{output}/shape", axis=0)], output)


def _gather(graph: Graph, name: str, table: Array, output: str) -> None:
    steps = np.maximum(np.abs(table).max(axis=1, keepdims=True), SMALLEST_STEP) / TABLE_STEPS
    digits = graph.constant(f"{name}/digits", np.rint(table / steps), np.int8)
    found = graph.node("Gather", [digits, "input_ids"], f"{output}/digits")
    step = graph.node("Gather", [graph.constant(f"{name}/steps", steps), "input_ids"], f"{output}/steps")
    graph.node("Mul", [graph.node("Cast", [found], f"{output}/float", to=TensorProto.FLOAT), step], output)
