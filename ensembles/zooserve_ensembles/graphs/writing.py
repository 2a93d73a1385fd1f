"""An ONNX graph while it is written: nodes in order, constants by name, and the model when it is whole."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

__all__ = ["IDS", "Graph", "floats", "int64s"]

OPSET, IR_VERSION = 18, 8
"""The oldest that hold what is written here, so that old runtimes read it too."""

IDS = ("batch", "length")
"""The shape of token ids and masks."""


class Graph:
    """Nodes and constants so far. Writing a node answers its output's name, so that calls read like formulas."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, TensorProto] = {}
        self._domains = {"": OPSET}

    def node(self, op: str, inputs: Sequence[str], output: str, *, domain: str = "", **attributes: Any) -> str:
        """Append a node of one output."""
        self._domains.setdefault(domain, 1)
        self.nodes.append(helper.make_node(op, list(inputs), [output], name=output, domain=domain, **attributes))
        return output

    def extend(self, nodes: Iterable[NodeProto], constants: Iterable[TensorProto]) -> None:
        """Append nodes that were made elsewhere, with their constants."""
        self.nodes.extend(nodes)
        self.constants.update((tensor.name, tensor) for tensor in constants)

    def constant(self, name: str, value: npt.ArrayLike, dtype: npt.DTypeLike = np.float32) -> str:
        """Keep an array under this name; a name that is there already stays as it is."""
        if name not in self.constants:
            array = np.ascontiguousarray(value, dtype=dtype).reshape(np.shape(value))
            self.constants[name] = numpy_helper.from_array(array, name)
        return name

    def serialized(self, inputs: Sequence[ValueInfoProto], outputs: Sequence[ValueInfoProto]) -> bytes:
        """The checked model between these tensors, as the bytes of its file."""
        graph = helper.make_graph(self.nodes, self._name, inputs, outputs, list(self.constants.values()))
        opsets = [helper.make_opsetid(domain, version) for domain, version in self._domains.items()]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        onnx.checker.check_model(model, full_check=True)
        content: bytes = model.SerializeToString()
        return content


def int64s(shapes: Mapping[str, Sequence[str | int]]) -> list[ValueInfoProto]:
    """Graph inputs or outputs of 64-bit integers, by name and shape."""
    return [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name, shape in shapes.items()]


def floats(shapes: Mapping[str, Sequence[str | int]]) -> list[ValueInfoProto]:
    """Graph inputs or outputs of 32-bit floats, by name and shape."""
    return [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
