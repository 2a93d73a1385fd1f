"""Tensors of a safetensors file: a length, a JSON header of that length, the data."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["read_safetensors"]

DTYPES = {"F32": "<f4", "F16": "<f2", "I64": "<i8"}


def read_safetensors(content: bytes) -> Mapping[str, npt.NDArray[Any]]:
    """Every tensor by name, as views of the content. Raises ValueError for a type that is not known here."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    data = memoryview(content)[8 + length :]
    return {name: _array(name, entry, data) for name, entry in header.items() if name != "__metadata__"}


def _array(name: str, entry: Mapping[str, Any], data: memoryview) -> npt.NDArray[Any]:
    if entry["dtype"] not in DTYPES:
        raise ValueError(f"tensor {name} is {entry['dtype']}; known here: {', '.join(DTYPES)}")
    start, end = entry["data_offsets"]
    return np.frombuffer(data[start:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
