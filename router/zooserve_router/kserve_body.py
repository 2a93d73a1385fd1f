"""A look into a KServe v2 inference body before it is passed on unchanged.

Refused is what would only fail inside a stage, as a server error that names nothing (broken JSON, text that is no
UTF-8, token ids beyond the vocabulary), and what reaches past this request (shared memory). Names, types and shapes of
tensors are Triton's to check: it answers 400 by itself.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson

from zooserve.errors import BadInput
from zooserve_router.payload import kind_of
from zooserve_router.vocabulary import Vocabulary

__all__ = ["checked_body"]

_BYTES_PER_TOKEN = 4
_ID_BYTES = 8


def checked_body(body: bytes, header_length: str | None, vocabulary: Vocabulary | None) -> int:
    """About how many tokens the body brings, for admission. Raises BadInput naming the tensor at fault."""
    length = _header_length(body, header_length)
    header = _json_header(body[:length])
    _refuse_shared_memory(header)
    tokens = 0
    offset = length
    for tensor in _tensors(header, "inputs"):
        size = _parameters(tensor).get("binary_data_size", 0)
        if not isinstance(size, int) or size < 0 or offset + size > len(body):
            raise BadInput(f"binary_data_size of {_name(tensor)} does not fit the body.", param=_name(tensor))
        tokens += _checked_tensor(tensor, body[offset : offset + size], vocabulary)
        offset += size
    if offset != len(body):
        raise BadInput(f"The body has {len(body) - offset} bytes after its last tensor.")
    return max(tokens, 1)


def _header_length(body: bytes, header_length: str | None) -> int:
    if header_length is None:
        return len(body)
    if not (header_length.isascii() and header_length.isdigit() and int(header_length) <= len(body)):
        raise BadInput("Inference-Header-Content-Length is not the length of the JSON in front of the tensors.")
    return int(header_length)


def _json_header(raw: bytes) -> dict[str, Any]:
    try:
        header = orjson.loads(raw)
    except orjson.JSONDecodeError as exc:
        raise BadInput(f"The inference request is not valid JSON: {exc}.", code="invalid_json") from exc
    if not isinstance(header, dict):
        raise BadInput(f"The inference request is {kind_of(header)}; send a JSON object.")
    return header


def _tensors(header: dict[str, Any], part: str) -> Iterator[dict[str, Any]]:
    tensors = header.get(part, [])
    if not isinstance(tensors, list) or not all(isinstance(tensor, dict) for tensor in tensors):
        raise BadInput(f"`{part}` must be an array of tensors.", param=part)
    if part == "inputs" and not tensors:
        raise BadInput("`inputs` is missing or empty.", param=part)
    yield from tensors


def _refuse_shared_memory(header: dict[str, Any]) -> None:
    for part in ("inputs", "outputs"):
        for tensor in _tensors(header, part):
            if any(name.startswith("shared_memory") for name in _parameters(tensor)):
                raise BadInput(f"{_name(tensor)}: shared memory is not reachable here; send the data.", param=part)


def _parameters(tensor: dict[str, Any]) -> dict[str, Any]:
    parameters = tensor.get("parameters", {})
    if not isinstance(parameters, dict):
        raise BadInput(f"`parameters` of {_name(tensor)} must be an object.", param=_name(tensor))
    return parameters


def _name(tensor: dict[str, Any]) -> str:
    return str(tensor.get("name"))[:64]


def _checked_tensor(tensor: dict[str, Any], binary: bytes, vocabulary: Vocabulary | None) -> int:
    """Its tokens; a mask counts nothing."""
    if tensor.get("datatype") == "BYTES":
        return _checked_texts(tensor, binary)
    if tensor.get("name") == "input_ids" and tensor.get("datatype") == "INT64":
        return _checked_ids(tensor, binary, vocabulary)
    return 0


def _checked_texts(tensor: dict[str, Any], binary: bytes) -> int:
    if not binary:
        return len(orjson.dumps(tensor.get("data"))) // _BYTES_PER_TOKEN
    offset = 0
    while offset < len(binary):
        end = offset + 4 + int.from_bytes(binary[offset : offset + 4], "little")
        if offset + 4 > len(binary) or end > len(binary):
            raise BadInput(f"{_name(tensor)}: its elements do not add up to binary_data_size.", param=_name(tensor))
        try:
            binary[offset + 4 : end].decode()
        except UnicodeDecodeError as exc:
            raise BadInput(f"{_name(tensor)} contains text that is not UTF-8: {exc}.", param=_name(tensor)) from exc
        offset = end
    return len(binary) // _BYTES_PER_TOKEN


def _checked_ids(tensor: dict[str, Any], binary: bytes, vocabulary: Vocabulary | None) -> int:
    if len(binary) % _ID_BYTES:
        raise BadInput("input_ids: binary_data_size is no multiple of 8.", param="input_ids")
    ids = np.frombuffer(binary, "<i8") if binary else _ids_of_json(tensor.get("data"))
    if vocabulary is not None and ids.size and not (ids.min() >= 0 and ids.max() < vocabulary.size):
        raise BadInput(f"input_ids must be 0 to {vocabulary.size - 1}.", param="input_ids")
    return int(ids.size)


def _ids_of_json(data: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    try:
        ids = np.asarray(data)
    except ValueError as exc:  # rows of different lengths
        raise BadInput(f"input_ids: its data is no array of numbers: {exc}.", param="input_ids") from exc
    if ids.dtype.kind not in "iu":
        raise BadInput("input_ids: its data must be integers.", param="input_ids")
    return ids.astype(np.int64)
