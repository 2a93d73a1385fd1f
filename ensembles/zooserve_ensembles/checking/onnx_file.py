"""What an ONNX file says of itself, read without its weights: tensors, nodes, and where the weights lie.

Reads protobuf's wire format directly, from a mapped file: 90 MB of weights cost nothing, and onnx need not be imported.
"""

import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ExternalData", "Graph", "Initializer", "Node", "NotOnnx", "OnnxTensor", "read_graph"]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_TYPES = {
    1: "FP32",
    2: "UINT8",
    3: "INT8",
    4: "UINT16",
    5: "INT16",
    6: "INT32",
    7: "INT64",
    8: "STRING",
    9: "BOOL",
    10: "FP16",
    11: "FP64",
    12: "UINT32",
    13: "UINT64",
    16: "BF16",
}

Span = tuple[int, int]


class NotOnnx(ValueError):
    """The bytes are no ONNX model, or not all of one; the message says how one can tell."""


@dataclass(frozen=True)
class OnnxTensor:
    """An input or output. `dims` has -1 where the size is open, and is None where the file gives no shape."""

    name: str
    dtype: str
    dims: tuple[int, ...] | None


@dataclass(frozen=True)
class ExternalData:
    """A part of another file that holds a tensor's elements; `length` is 0 where the file does not say it."""

    location: str
    offset: int
    length: int


@dataclass(frozen=True)
class Initializer:
    """A tensor of weights, without its elements."""

    name: str
    dims: tuple[int, ...]
    external: ExternalData | None


@dataclass(frozen=True)
class Node:
    """One operation, without its attributes."""

    operation: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Graph:
    """A model's graph, weights left out."""

    inputs: tuple[OnnxTensor, ...]
    outputs: tuple[OnnxTensor, ...]
    nodes: tuple[Node, ...]
    initializers: Mapping[str, Initializer]


def read_graph(file: Path) -> Graph:
    """The graph in `file`. Raises NotOnnx; OSError where it cannot be read."""
    with file.open("rb") as opened:
        if not file.stat().st_size:
            raise NotOnnx("it is empty")
        with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Reader(data).model()


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data

    def model(self) -> Graph:
        graph, version, operators = None, 0, False
        for number, value in self._fields((0, len(self._data))):
            if number == 1 and isinstance(value, int):
                version = value
            elif number == 7 and not isinstance(value, int):
                graph = value
            operators = operators or number == 8
        if graph is None or not version or not operators:
            raise NotOnnx("it has no graph, or names no operators")
        return self._graph(graph)

    def _graph(self, span: Span) -> Graph:
        initializers: dict[str, Initializer] = {}
        inputs, outputs, nodes = [], [], []
        for number, value in self._spans(span):
            if number == 1:
                nodes.append(self._node(value, initializers))
            elif number == 5:
                tensor = self._initializer(value)
                initializers[tensor.name] = tensor
            elif number == 11:
                inputs.append(self._value_info(value))
            elif number == 12:
                outputs.append(self._value_info(value))
        # Before IR version 4 the initializers are listed among the inputs.
        needed = tuple(tensor for tensor in inputs if tensor.name not in initializers)
        return Graph(needed, tuple(outputs), tuple(nodes), initializers)

    def _node(self, span: Span, initializers: dict[str, Initializer]) -> Node:
        inputs, outputs, operation = [], [], ""
        attributes: list[Span] = []
        for number, value in self._spans(span):
            if number == 1:
                inputs.append(self._text(value))
            elif number == 2:
                outputs.append(self._text(value))
            elif number == 4:
                operation = self._text(value)
            elif number == 5:
                attributes.append(value)
        if operation == "Constant" and outputs:
            for span in (inner for attribute in attributes for number, inner in self._spans(attribute) if number == 5):
                tensor = self._initializer(span)
                initializers[outputs[0]] = Initializer(outputs[0], tensor.dims, tensor.external)
        return Node(operation, tuple(inputs), tuple(outputs))

    def _initializer(self, span: Span) -> Initializer:
        name, dims, external = "", [], {}
        for number, value in self._fields(span):
            if number == 1:
                dims += [value] if isinstance(value, int) else list(self._packed(value))
            elif number == 8 and not isinstance(value, int):
                name = self._text(value)
            elif number == 13 and not isinstance(value, int):
                entry = {inner: self._text(text) for inner, text in self._spans(value)}
                external[entry.get(1, "")] = entry.get(2, "")
        return Initializer(name, tuple(dims), _external(external))

    def _value_info(self, span: Span) -> OnnxTensor:
        name, kind = "", None
        for number, value in self._spans(span):
            if number == 1:
                name = self._text(value)
            elif number == 2:
                kind = next((inner for which, inner in self._spans(value) if which == 1), None)
        dtype, dims = "", None
        for number, field in self._fields(kind) if kind else ():
            if number == 1 and isinstance(field, int):
                dtype = _TYPES.get(field, "")
            elif number == 2 and not isinstance(field, int):
                dims = tuple(self._size(size) for _, size in self._spans(field))
        return OnnxTensor(name, dtype, dims)

    def _size(self, span: Span) -> int:
        sizes = [value for number, value in self._fields(span) if number == 1 and isinstance(value, int)]
        return sizes[-1] if sizes and sizes[-1] > 0 else -1

    def _text(self, span: Span) -> str:
        return self._data[span[0] : span[1]].decode("utf-8", "replace")

    def _packed(self, span: Span) -> Iterator[int]:
        position, end = span
        while position < end:
            value, position = self._varint(position, end)
            yield value

    def _spans(self, span: Span) -> Iterator[tuple[int, Span]]:
        for number, value in self._fields(span):
            if not isinstance(value, int):
                yield number, value

    def _fields(self, span: Span) -> Iterator[tuple[int, int | Span]]:
        position, end = span
        while position < end:
            key, position = self._varint(position, end)
            number, wire = key >> 3, key & 7
            if wire == _VARINT:
                value, position = self._varint(position, end)
                yield number, value
                continue
            if wire == _BYTES:
                size, position = self._varint(position, end)
            elif wire in (_FIXED32, _FIXED64):
                size = 4 if wire == _FIXED32 else 8
            else:
                raise NotOnnx("its bytes are no protobuf")
            if not number:
                raise NotOnnx("its bytes are no protobuf")
            if position + size > end:
                raise NotOnnx(_cut(position + size - end, whole=end == len(self._data), seen=position > _HEADER))
            if wire == _BYTES:
                yield number, (position, position + size)
            position += size

    def _varint(self, position: int, end: int) -> tuple[int, int]:
        value = shift = 0
        while position < end and shift < 70:
            byte = self._data[position]
            value |= (byte & 0x7F) << shift
            position += 1
            if byte < 0x80:
                return value, position
            shift += 7
        raise NotOnnx("its bytes are no protobuf")


# A model's first fields (versions, producer) end well before this.
_HEADER = 4


def _cut(missing: int, *, whole: bool, seen: bool) -> str:
    if whole and seen:
        return f"it is cut off: at least {missing:,} bytes are missing at its end"
    return "its bytes are no protobuf"


def _external(entries: Mapping[str, str]) -> ExternalData | None:
    if "location" not in entries:
        return None
    try:
        offset, length = (int(entries.get(key) or 0) for key in ("offset", "length"))
    except ValueError as exc:
        raise NotOnnx("a tensor's place in another file is no number") from exc
    return ExternalData(entries["location"], offset, length)
