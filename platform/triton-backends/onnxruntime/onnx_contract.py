"""What a model's configuration declares, compared with what its ONNX file has."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from onnx_session import ModelUnusable

__all__ = ["check_contract", "declared_tensors"]

# ONNX Runtime's name of a tensor type, and Triton's.
TYPES = {
    "tensor(bool)": "TYPE_BOOL",
    "tensor(uint8)": "TYPE_UINT8",
    "tensor(uint16)": "TYPE_UINT16",
    "tensor(uint32)": "TYPE_UINT32",
    "tensor(uint64)": "TYPE_UINT64",
    "tensor(int8)": "TYPE_INT8",
    "tensor(int16)": "TYPE_INT16",
    "tensor(int32)": "TYPE_INT32",
    "tensor(int64)": "TYPE_INT64",
    "tensor(float16)": "TYPE_FP16",
    "tensor(float)": "TYPE_FP32",
    "tensor(double)": "TYPE_FP64",
    "tensor(string)": "TYPE_STRING",
}


class Tensor(Protocol):
    """An input or output as ONNX Runtime describes it."""

    name: str
    type: str
    shape: Sequence[int | str | None]


def check_contract(
    config: Mapping[str, Any], inputs: Sequence[Tensor], outputs: Sequence[Tensor], *, batched: bool
) -> None:
    """Raise ModelUnusable unless the declared tensors fit the file: names, types, ranks and fixed sizes."""
    needed = {tensor.name for tensor in inputs} - {entry["name"] for entry in config.get("input", [])}
    if needed:
        raise ModelUnusable(
            f"the file needs the inputs {_names(inputs)}; config declares no {', '.join(sorted(needed))}"
        )
    for entry in config.get("input", []):
        _check_one("input", entry, inputs, batched=batched)
    for entry in config.get("output", []):
        _check_one("output", entry, outputs, batched=batched)


def declared_tensors(tensors: Iterable[Tensor], *, batched: bool) -> list[dict[str, Any]]:
    """The file's tensors as a configuration would declare them."""
    return [
        {"name": tensor.name, "data_type": _triton_type(tensor), "dims": _dims(tensor)[1 if batched else 0 :]}
        for tensor in tensors
    ]


def _check_one(kind: str, entry: Mapping[str, Any], tensors: Sequence[Tensor], *, batched: bool) -> None:
    name = entry["name"]
    found = next((tensor for tensor in tensors if tensor.name == name), None)
    if found is None:
        raise ModelUnusable(f"config declares {kind} {name}; the file has {_names(tensors)}")
    if _triton_type(found) != entry["data_type"]:
        raise ModelUnusable(
            f"config declares {kind} {name} as {entry['data_type']}; the file has {_triton_type(found)}"
        )
    declared, has = _integers(entry["dims"]), _dims(found)
    if batched and has[:1] != [-1]:
        raise ModelUnusable(f"max_batch_size is not 0, but the file's {kind} {name} is {has}: its first size is fixed")
    if not _fit(declared, has[1:] if batched else has):
        raise ModelUnusable(f"config declares {kind} {name} as {declared}; the file has {has[1:] if batched else has}")


def _fit(declared: Sequence[int], found: Sequence[int]) -> bool:
    """A size left open on either side fits anything."""
    return len(declared) == len(found) and all(
        want == have or -1 in (want, have) for want, have in zip(declared, found, strict=True)
    )


def _triton_type(tensor: Tensor) -> str:
    if tensor.type in TYPES:
        return TYPES[tensor.type]
    raise ModelUnusable(f"{tensor.name} is a {tensor.type}, which Triton cannot carry")


def _dims(tensor: Tensor) -> list[int]:
    return [size if isinstance(size, int) and size > 0 else -1 for size in tensor.shape]


def _integers(dims: Sequence[int | str]) -> list[int]:
    return [int(size) for size in dims]  # Triton's JSON writes 64-bit numbers as strings


def _names(tensors: Sequence[Tensor]) -> str:
    return ", ".join(tensor.name for tensor in tensors)
