"""An ONNX model as TensorRT's parser reads it: attention that ONNX Runtime fused is written out in standard operators.

Only `com.microsoft.MultiHeadAttention` over three inputs and a bias is, which is how all-MiniLM-L6-v2's graph comes;
any other operator outside the standard stays, and is named.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from zooserve_ensembles.engines import wire

__all__ = ["GraphTensor", "PlainGraph", "plain_graph"]

_GRAPH, _NODE, _INITIALIZER, _INPUT, _OUTPUT = 7, 1, 5, 11, 12  # of a model, then of a graph
_STANDARD = ("", "ai.onnx")
_INT64, _FLOAT = 7, 1
_TYPES = {1: "FP32", 6: "INT32", 7: "INT64", 9: "BOOL", 10: "FP16", 16: "BF16"}
_BIAS = 5
"""Which input of MultiHeadAttention is added to its scores."""


@dataclass(frozen=True)
class GraphTensor:
    """An input or output. `dims` has -1 where the size is open."""

    name: str
    dtype: str
    dims: tuple[int, ...]


@dataclass(frozen=True)
class PlainGraph:
    """The model's bytes with attention written out, and what they declare."""

    content: bytes
    inputs: tuple[GraphTensor, ...]
    outputs: tuple[GraphTensor, ...]
    rewritten: int
    foreign: tuple[str, ...]
    """Operators that are left outside the standard, each once."""


@dataclass(frozen=True)
class _Node:
    operation: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, float | int]


def plain_graph(model: bytes) -> PlainGraph:
    """Rewrite the model. Raises BadWire where the bytes are no ONNX model."""
    parts, graph = [], None
    for which, value in wire.fields(memoryview(model)):
        if which == _GRAPH and not isinstance(value, int):
            graph = _Graph(value)
            parts.append(wire.field(_GRAPH, b"".join(graph.parts)))
        else:
            parts.append(_copied(which, value))
    if graph is None:
        raise wire.BadWire("it has no graph")
    return PlainGraph(
        b"".join(parts), graph.inputs(), graph.outputs(), graph.rewritten, tuple(sorted(set(graph.foreign)))
    )


class _Graph:
    def __init__(self, data: memoryview) -> None:
        self.parts: list[bytes | memoryview] = []
        self.rewritten = 0
        self.foreign: list[str] = []
        self._initializers: set[str] = set()
        self._tensors: dict[int, list[GraphTensor]] = {_INPUT: [], _OUTPUT: []}
        for which, value in wire.fields(data):
            if which == _NODE and not isinstance(value, int):
                self.parts += self._node(value)
                continue
            if which == _INITIALIZER and not isinstance(value, int):
                self._initializers.add(_text_of(value, 8))
            elif which in self._tensors and not isinstance(value, int):
                self._tensors[which].append(_tensor(value))
            self.parts.append(_copied(which, value))

    def inputs(self) -> tuple[GraphTensor, ...]:
        return tuple(tensor for tensor in self._tensors[_INPUT] if tensor.name not in self._initializers)

    def outputs(self) -> tuple[GraphTensor, ...]:
        return tuple(self._tensors[_OUTPUT])

    def _node(self, data: memoryview) -> list[bytes]:
        node = _read_node(data)
        if node.domain in _STANDARD:
            return [wire.field(_NODE, data)]
        if _can_be_written_out(node):
            self.rewritten += 1
            return [wire.field(_NODE, plain) for plain in _written_out(node)]
        self.foreign.append(f"{node.domain}.{node.operation}")
        return [wire.field(_NODE, data)]


def _can_be_written_out(node: _Node) -> bool:
    given = {place for place, name in enumerate(node.inputs) if name}
    known = set(node.attributes) <= {"num_heads", "scale", "mask_filter_value"}
    attention = node.operation == "MultiHeadAttention" and given in ({0, 1, 2}, {0, 1, 2, _BIAS})
    return attention and known and "num_heads" in node.attributes and sum(map(bool, node.outputs)) == 1


def _written_out(node: _Node) -> Iterator[bytes]:
    """Split into heads, softmax(query x key x scale + bias) x value, heads joined."""
    name, heads = node.name or node.outputs[0], int(node.attributes["num_heads"])
    yield _shape(f"{name}/apart", (0, 0, heads, -1))
    for part, given, order in zip("qkv", node.inputs[:3], ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)), strict=True):
        yield _made("Reshape", [given, f"{name}/apart"], f"{name}/{part}/split")
        yield _made("Transpose", [f"{name}/{part}/split"], f"{name}/{part}", _ints("perm", order))
    yield _made("MatMul", [f"{name}/q", f"{name}/k"], f"{name}/raw")
    yield from _scaled(node, name)
    scores = f"{name}/scaled"
    if bias := "".join(node.inputs[_BIAS : _BIAS + 1]):
        yield _made("Add", [scores, bias], f"{name}/scores")
        scores = f"{name}/scores"
    yield _made("Softmax", [scores], f"{name}/shares", _int("axis", -1))
    yield _made("MatMul", [f"{name}/shares", f"{name}/v"], f"{name}/mixed")
    yield _made("Transpose", [f"{name}/mixed"], f"{name}/rows", _ints("perm", (0, 2, 1, 3)))
    yield _shape(f"{name}/together", (0, 0, -1))
    yield _made("Reshape", [f"{name}/rows", f"{name}/together"], node.outputs[0])


def _scaled(node: _Node, name: str) -> Iterator[bytes]:
    """Times the attribute `scale`, or over the square root of a head's width where there is none."""
    if scale := float(node.attributes.get("scale", 0)):
        yield _constant(f"{name}/scale", _FLOAT, (), struct.pack("<f", scale))
        yield _made("Mul", [f"{name}/raw", f"{name}/scale"], f"{name}/scaled")
        return
    yield _made("Shape", [f"{name}/q"], f"{name}/width", _int("start", 3))
    yield _made("Cast", [f"{name}/width"], f"{name}/width_float", _int("to", _FLOAT))
    yield _made("Sqrt", [f"{name}/width_float"], f"{name}/root")
    yield _made("Div", [f"{name}/raw", f"{name}/root"], f"{name}/scaled")


def _made(operation: str, inputs: Sequence[str], output: str, *attributes: bytes) -> bytes:
    names = b"".join(wire.text(1, name) for name in inputs)
    given = b"".join(wire.field(5, attribute) for attribute in attributes)
    return names + wire.text(2, output) + wire.text(3, output) + wire.text(4, operation) + given


def _shape(name: str, sizes: Sequence[int]) -> bytes:
    return _constant(name, _INT64, (len(sizes),), struct.pack(f"<{len(sizes)}q", *sizes))


def _constant(name: str, dtype: int, dims: Sequence[int], content: bytes) -> bytes:
    tensor = b"".join(wire.number(1, size) for size in dims) + wire.number(2, dtype) + wire.field(9, content)
    return _made("Constant", [], name, wire.text(1, "value") + wire.field(5, tensor) + wire.number(20, 4))


def _int(name: str, value: int) -> bytes:
    return wire.text(1, name) + wire.number(3, value) + wire.number(20, 2)


def _ints(name: str, values: Sequence[int]) -> bytes:
    return wire.text(1, name) + b"".join(wire.number(8, value) for value in values) + wire.number(20, 7)


def _copied(which: int, value: int | memoryview) -> bytes:
    return wire.number(which, value) if isinstance(value, int) else wire.field(which, value)


def _read_node(data: memoryview) -> _Node:
    found: dict[int, list[memoryview]] = {}
    for which, value in wire.fields(data):
        if not isinstance(value, int):
            found.setdefault(which, []).append(value)
    inputs, outputs = (tuple(str(name, "utf-8") for name in found.get(which, [])) for which in (1, 2))
    name, operation, domain = (str(found.get(which, [memoryview(b"")])[0], "utf-8") for which in (3, 4, 7))
    attributes = dict(_attribute(attribute) for attribute in found.get(5, []))
    return _Node(operation, domain, name, inputs, outputs, attributes)


def _attribute(data: memoryview) -> tuple[str, float | int]:
    """Its name and its number; 0 where it is no number."""
    name, value = "", 0.0
    for which, content in wire.fields(data):
        if which == 1 and not isinstance(content, int):
            name = str(content, "utf-8")
        elif which == 2 and not isinstance(content, int):
            value = struct.unpack("<f", content)[0]
        elif which == 3 and isinstance(content, int):
            value = content
    return name, value


def _tensor(data: memoryview) -> GraphTensor:
    kind = next((inner for number, inner in _inside(data, 2) if number == 1), memoryview(b""))
    dtype = next((value for which, value in wire.fields(kind) if which == 1 and isinstance(value, int)), 0)
    dims = tuple(
        next((size for which, size in wire.fields(dim) if which == 1 and isinstance(size, int) and size > 0), -1)
        for which, dim in _inside(kind, 2)
        if which == 1
    )
    return GraphTensor(_text_of(data, 1), _TYPES.get(dtype, f"type {dtype}"), dims)


def _inside(data: memoryview, number: int) -> Iterator[tuple[int, memoryview]]:
    """The fields of the messages in that field."""
    for which, value in wire.fields(data):
        if which == number and not isinstance(value, int):
            yield from ((inner, found) for inner, found in wire.fields(value) if not isinstance(found, int))


def _text_of(data: memoryview, number: int) -> str:
    return next(
        (str(value, "utf-8") for which, value in wire.fields(data) if which == number and not isinstance(value, int)),
        "",
    )
