"""Triton's HTTP inference body: a JSON header followed by the tensors' raw bytes, both ways.

Pure functions over numpy. One encoder for every caller of the zoo, measured beside `tritonclient.http.aio` in
`router/README.md`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

__all__ = [
    "InferenceAnswer",
    "Tensor",
    "bytes_tensor",
    "decode_answer",
    "encode_request",
    "text_tensor",
    "token_tensor",
]

Array = npt.NDArray[Any]

_DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype("?"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
}


@dataclass(frozen=True)
class Tensor:
    """One input: its name, Triton's name of its type, its shape and its bytes."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: bytes


@dataclass(frozen=True)
class InferenceAnswer:
    """Which model answered, and its outputs by name."""

    model: str
    version: str
    outputs: Mapping[str, Array]


def text_tensor(name: str, texts: Sequence[str]) -> Tensor:
    """Texts as a BYTES tensor of shape [rows, 1]."""
    return bytes_tensor(name, [text.encode() for text in texts])


def bytes_tensor(name: str, rows: Sequence[bytes]) -> Tensor:
    """Anything as a BYTES tensor of shape [rows, 1]: four bytes of length before each."""
    parts: list[bytes] = []
    for row in rows:
        parts += (len(row).to_bytes(4, "little"), row)
    return Tensor(name, "BYTES", (len(rows), 1), b"".join(parts))


def token_tensor(name: str, rows: Array) -> Tensor:
    """Token ids (or a mask) as an INT64 tensor of shape [rows, length]."""
    whole = np.ascontiguousarray(rows, dtype="<i8")
    return Tensor(name, "INT64", whole.shape, whole.tobytes())


def encode_request(
    inputs: Sequence[Tensor], outputs: Sequence[str], *, request_id: str, timeout_us: int | None = None
) -> tuple[bytes, int]:
    """The body of one inference and the length of its JSON header; these outputs are asked for, in binary."""
    parameters = {} if timeout_us is None else {"timeout": timeout_us}
    header = orjson.dumps(
        {
            "id": request_id,
            "inputs": [
                {
                    "name": tensor.name,
                    "datatype": tensor.datatype,
                    "shape": tensor.shape,
                    "parameters": {"binary_data_size": len(tensor.data)},
                }
                for tensor in inputs
            ],
            "outputs": [{"name": name, "parameters": {"binary_data": True}} for name in outputs],
            "parameters": parameters,
        }
    )
    return b"".join((header, *(tensor.data for tensor in inputs))), len(header)


def decode_answer(body: bytes, header_length: int) -> InferenceAnswer:
    """The answer in `body`; its arrays are views into it, those of texts objects. Raises ValueError for no answer."""
    header = orjson.loads(body[:header_length])
    outputs = {}
    offset = header_length
    try:
        for output in header["outputs"]:
            size = output["parameters"]["binary_data_size"]
            outputs[output["name"]] = _array(output["datatype"], body, offset, size).reshape(output["shape"])
            offset += size
        return InferenceAnswer(header["model_name"], header["model_version"], outputs)
    except (KeyError, TypeError) as exc:
        raise ValueError(f"not an inference answer with binary tensors: {header!r:.200}") from exc


def _array(datatype: str, body: bytes, offset: int, size: int) -> Array:
    if datatype == "BYTES":
        return np.array(list(_texts(body, offset, offset + size)), dtype=object)
    dtype = _DTYPES[datatype]
    return np.frombuffer(body, dtype, size // dtype.itemsize, offset)


def _texts(body: bytes, offset: int, end: int) -> Iterator[str]:
    while offset < end:
        start = offset + 4
        offset = start + int.from_bytes(body[offset:start], "little")
        yield body[start:offset].decode()
