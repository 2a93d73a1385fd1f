"""Reading a safetensors file: a length, a JSON header with types, shapes and offsets, then the numbers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["read_bert", "read_safetensors"]

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4"}


def read_safetensors(file: Path) -> dict[str, npt.NDArray[Any]]:
    """Every tensor of the file, by name."""
    content = file.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] not in DTYPES:
            raise ValueError(f"{file.name}: tensor {name} is {entry['dtype']}, which has no type in numpy")
        begin, end = entry["data_offsets"]
        flat = np.frombuffer(content[start + begin : start + end], DTYPES[entry["dtype"]])
        tensors[name] = flat.reshape(entry["shape"])
    return tensors


def read_bert(file: Path) -> dict[str, npt.NDArray[Any]]:
    """The same by the names of a BertModel's state dict: without `bert.`, and layer norms in today's words."""
    return {
        name.removeprefix("bert.")
        .replace("LayerNorm.gamma", "LayerNorm.weight")
        .replace("LayerNorm.beta", "LayerNorm.bias"): tensor
        for name, tensor in read_safetensors(file).items()
    }
