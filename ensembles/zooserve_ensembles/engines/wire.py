"""Protobuf's wire format, read and written by hand: an ONNX file changes at a few nodes, and onnx need not be there."""

from collections.abc import Iterator

__all__ = ["BadWire", "Field", "field", "fields", "number", "text", "varint"]

Field = tuple[int, int | memoryview]
"""The number of a field, and what it holds: an integer, or bytes (of 4 or 8 where it is a fixed-size number)."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIZES = {_FIXED32: 4, _FIXED64: 8}


class BadWire(ValueError):
    """The bytes are no protobuf, or not all of one."""


def fields(data: memoryview) -> Iterator[Field]:
    """Each field of a message, in order. Raises BadWire."""
    position = 0
    while position < len(data):
        key, position = _read_varint(data, position)
        kind = key & 7
        if kind == _VARINT:
            value, position = _read_varint(data, position)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            size, position = _read_varint(data, position)
        elif kind in _SIZES:
            size = _SIZES[kind]
        else:
            raise BadWire("its bytes are no protobuf")
        if position + size > len(data):
            raise BadWire(f"it is cut off: at least {position + size - len(data):,} bytes are missing")
        yield key >> 3, data[position : position + size]
        position += size


def varint(value: int) -> bytes:
    """An integer as protobuf writes it; a negative one as 64 bits."""
    rest, written = value & 0xFFFF_FFFF_FFFF_FFFF, bytearray()
    while rest > 0x7F:
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*written, rest])


def number(which: int, value: int) -> bytes:
    """A field that holds an integer."""
    return varint(which << 3 | _VARINT) + varint(value)


def field(which: int, content: bytes | memoryview) -> bytes:
    """A field that holds bytes or a message."""
    return b"".join((varint(which << 3 | _BYTES), varint(len(content)), content))


def text(which: int, content: str) -> bytes:
    """A field that holds text."""
    return field(which, content.encode())


def _read_varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 70:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return value, position
        shift += 7
    raise BadWire("its bytes are no protobuf")
