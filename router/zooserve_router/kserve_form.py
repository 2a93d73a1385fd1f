"""The form of a KServe v2 inference: what every tensor must be like, whatever the model.

Triton believes what a request says of itself: a shape of 2**62 elements killed it (signal 11), one of 100,000,000 took
800 MB for a single number, and a field of another type is a server error that names nothing.
"""

import json
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

import numpy as np

from zooserve.errors import BadInput
from zooserve_router.payload import kind_of

__all__ = ["check_element_count", "check_header", "refuse_repeated_names"]

_MOST_ELEMENTS = 2**24
_LONGEST_TIMEOUT_US = 2**62
_SIZES = {
    "BOOL": 1, "UINT8": 1, "UINT16": 2, "UINT32": 4, "UINT64": 8, "INT8": 1, "INT16": 2, "INT32": 4, "INT64": 8,
    "FP16": 2, "BF16": 2, "FP32": 4, "FP64": 8,
}  # fmt: skip
"""Bytes of one element by datatype; BYTES has none."""


def check_header(header: Mapping[str, Any]) -> None:
    """Raises BadInput for a field beside the tensors that is of another type than KServe v2 has it."""
    if not isinstance(header.get("id", ""), str):
        raise BadInput(f"`id` is {kind_of(header['id'])}; it must be a string.", param="id")
    parameters = header.get("parameters", {})
    _check_types("parameters", parameters, {"binary_data_output": bool})
    for name in ("timeout", "priority"):
        value = parameters.get(name, 0)
        if type(value) is not int or not 0 <= value <= _LONGEST_TIMEOUT_US:
            raise BadInput(f"`parameters.{name}` must be a whole number, 0 or more.", param=name)
    for output in header.get("outputs", []):
        if not isinstance(output.get("name"), str):
            raise BadInput("An output without a `name`.", param="outputs")
        _check_types("outputs.parameters", output.get("parameters", {}), {"binary_data": bool, "classification": int})


def _check_types(where: str, parameters: Any, types: Mapping[str, type]) -> None:
    if not isinstance(parameters, dict):
        raise BadInput(f"`{where}` is {kind_of(parameters)}; it must be an object.", param=where)
    for name, wanted in types.items():
        if name in parameters and type(parameters[name]) is not wanted:
            raise BadInput(f"`{where}.{name}` is {kind_of(parameters[name])}; it has another type.", param=name)


def check_element_count(name: str, tensor: Mapping[str, Any], binary: bytes) -> None:
    """Raises BadInput unless shape, datatype and data agree, and the tensor is of a size that makes sense."""
    shape = tensor.get("shape")
    if not isinstance(shape, list) or not all(type(size) is int and size > 0 for size in shape):
        raise BadInput(f"{name}: its shape must be an array of whole numbers above 0.", param=name)
    elements = prod(shape)
    if elements > _MOST_ELEMENTS:
        raise BadInput(f"{name} claims more than {_MOST_ELEMENTS} elements; send fewer.", param=name)
    given = _elements(name, tensor, binary)
    if given != elements:
        raise BadInput(f"{name}: its shape has {elements} elements, its data {given}.", param=name)


def _elements(name: str, tensor: Mapping[str, Any], binary: bytes) -> int:
    datatype = tensor.get("datatype")
    if datatype == "BYTES":
        return _strings(binary) if binary else _texts(name, tensor.get("data"))
    if not isinstance(datatype, str) or datatype not in _SIZES:
        raise BadInput(f"{name}: its datatype must be BYTES or one of {', '.join(_SIZES)}.", param=name)
    if binary:
        whole, rest = divmod(len(binary), _SIZES[datatype])
        return whole if not rest else -1
    try:
        numbers = np.asarray(tensor.get("data"))
    except (ValueError, OverflowError) as exc:
        raise BadInput(f"{name}: its data is no array of numbers.", param=name) from exc
    if numbers.dtype.kind not in "biuf" or not numbers.ndim:
        raise BadInput(f"{name}: its data must be an array of numbers that fit {datatype}.", param=name)
    return int(numbers.size)


def _strings(binary: bytes) -> int:
    """How many length-prefixed strings these bytes are; they were read through before."""
    count = offset = 0
    while offset < len(binary):
        offset += 4 + int.from_bytes(binary[offset : offset + 4], "little")
        count += 1
    return count


def _texts(name: str, data: Any) -> int:
    count, waiting = 0, [data]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, str):
            count += 1
        else:
            raise BadInput(f"{name} holds {kind_of(value)}; every element must be a string.", param=name)
    return count


def refuse_repeated_names(raw: bytes, names: Mapping[bytes, int]) -> None:
    """Raises BadInput for an object with a name twice: this reads the last of them, Triton the first.

    `names` says how often each may stand in the text; only where there are more is it read with care.
    """
    if b"\\u" in raw or any(raw.count(name) > often for name, often in names.items()):
        try:
            json.loads(raw, object_pairs_hook=_once)
        except (RecursionError, ValueError) as exc:
            raise BadInput("The inference request cannot be read: nested too deep, or a number too long.") from exc


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    listed = list(pairs)
    found = dict(listed)
    if len(found) != len(listed):
        raise BadInput("An object of the inference request has the same name twice.", code="invalid_json")
    return found
