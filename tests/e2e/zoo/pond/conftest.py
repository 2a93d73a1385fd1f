"""Tiny ONNX models for the Python-based backend: a few that work, the others broken in one way each."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

TENSORS = """
input [ { name: "x" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true } ]
output [
  { name: "plus_one" data_type: TYPE_FP32 dims: [ -1 ] },
  { name: "doubled" data_type: TYPE_FP32 dims: [ -1 ] }
]
"""
# Sends as soon as four requests are there: tests know what shares a call.
FOUR = "dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 20000000 }\n"
LOOKUP = """
input [ { name: "ids" data_type: TYPE_INT64 dims: [ 2 ] } ]
output [ { name: "rows" data_type: TYPE_FP32 dims: [ 2, 3 ] } ]
"""
OPENVINO = 'optimization { execution_accelerators { cpu_execution_accelerator [ { name: "openvino" } ] } }\n'
NICE = 'parameters { key: "niceness" value { string_value: "7" } }\n'
SLICED = 'parameters { key: "run_elements" value { string_value: "5" } }\n'
SIDE_BY_SIDE = 'parameters { key: "side_by_side" value { string_value: "2" } }\n'
WORDY = 'parameters { key: "intra_op_thread_count" value { string_value: "two" } }\n'


@pytest.fixture(scope="session")
def pond(start_zoo: Callable[[str, Path], Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A running server over them."""
    root = tmp_path_factory.mktemp("pond")
    dig_pond(root)
    return start_zoo("pond", root)


def dig_pond(root: Path) -> None:
    """Write the models below `root`."""
    arithmetic = _arithmetic()
    _model(root, "single", TENSORS, arithmetic)
    _model(root, "fours", TENSORS + FOUR, arithmetic)
    _model(root, "lookup", LOOKUP + FOUR, _lookup())
    _model(root, "sliced", TENSORS + SLICED, arithmetic)
    _model(root, "side_by_side", TENSORS + SIDE_BY_SIDE, arithmetic)
    _model(root, "nice", TENSORS + NICE, arithmetic)
    _model(root, "unbatched", TENSORS.replace("-1", "2, 3").replace("allow_ragged_batch: true", ""), arithmetic, rows=0)
    _model(root, "completed", "", arithmetic)
    _model(root, "not_onnx", TENSORS, b"this is no model")
    _model(root, "no_file", TENSORS, None)
    _model(root, "wrong_output", TENSORS.replace("doubled", "tripled"), arithmetic)
    _model(root, "wrong_type", TENSORS.replace("TYPE_FP32", "TYPE_INT32"), arithmetic)
    _model(root, "wrong_rank", TENSORS.replace("-1", "-1, 5"), arithmetic)
    _model(root, "missing_input", TENSORS, _arithmetic(inputs=("x", "scale")))
    _model(root, "fixed_batch", TENSORS, _arithmetic(batch=1))
    _model(root, "no_openvino", TENSORS + OPENVINO, arithmetic)
    _model(root, "twins", TENSORS, arithmetic, instances=2)
    _model(root, "wordy", TENSORS + WORDY, arithmetic)


def _model(root: Path, name: str, tensors: str, onnx_file: bytes | None, rows: int = 8, instances: int = 1) -> None:
    version = root / name / "1"
    version.mkdir(parents=True)
    head = f'name: "{name}"\nbackend: "onnxruntime"\nmax_batch_size: {rows}\n'
    group = f"instance_group [ {{ kind: KIND_CPU count: {instances} }} ]\n"
    (root / name / "config.pbtxt").write_text(f"{head}{group}{tensors}")
    if onnx_file is not None:
        (version / "model.onnx").write_bytes(onnx_file)


def _arithmetic(inputs: tuple[str, ...] = ("x",), batch: int | str = "batch") -> bytes:
    one = numpy_helper.from_array(np.array(1, np.float32), "one")
    two = numpy_helper.from_array(np.array(2, np.float32), "two")
    nodes = [helper.make_node("Add", ["x", "one"], ["plus_one"]), helper.make_node("Mul", ["x", "two"], ["doubled"])]
    shape = [batch, "length"]
    graph = helper.make_graph(
        nodes,
        "arithmetic",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("plus_one", "doubled")],
        [one, two],
    )
    return _serialised(graph)


def _lookup() -> bytes:
    table = numpy_helper.from_array(np.arange(30, dtype=np.float32).reshape(10, 3), "table")
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "ids"], ["rows"])],
        "lookup",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", 2])],
        [helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["batch", 2, 3])],
        [table],
    )
    return _serialised(graph)


def _serialised(graph: onnx.GraphProto) -> bytes:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())
