"""A look into a KServe v2 inference body before it is passed on unchanged.

Refused is what would only fail inside a stage, as a server error that names nothing (broken JSON, text that is no
UTF-8 or holds NULs, token ids beyond the vocabulary, a mask that is none, rows longer than the model reads), what has
no form (`kserve_form`), and what reaches past this request (shared memory). Whether names and types are the model's is
Triton's to check: it answers 400 by itself. What was sent is only ever measured, never written out again: a writer's
bounds are not a reader's.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import orjson

from zooserve.errors import BadInput, InputTooLong
from zooserve_router.kserve_form import check_element_count, check_header, refuse_repeated_names
from zooserve_router.payload import NUL_ADVICE, kind_of, shown
from zooserve_router.vocabulary import Vocabulary

__all__ = ["checked_body"]

_BYTES_PER_TOKEN = 4
_ID_BYTES = 8
# Python refuses to read numbers of thousands of digits; no body here is a terabyte.
_LENGTH_DIGITS = 12
_ENCODER_INPUTS = {"input_ids", "attention_mask"}


def checked_body(
    body: bytes,
    header_length: str | None,
    vocabulary: Vocabulary | None,
    longest_row: int | None = None,
    tokens_of_content: int | None = None,
) -> int:
    """About how many tokens the body brings, for admission. Raises BadInput naming the tensor at fault.

    `longest_row` is given for a model that reads rows of token ids: the most tokens that a row may have.
    `tokens_of_content` is given for a model that reads images or files: what each counts for. They are no text.
    """
    length = _header_length(body, header_length)
    header = _json_header(body[:length])
    _refuse_shared_memory(header)
    check_header(header)
    _refuse_repeated_names(body[:length], header)
    tokens = 0
    offset = length
    binaries = []
    for tensor in _tensors(header, "inputs"):
        size = _parameters(tensor).get("binary_data_size", 0)
        if not isinstance(size, int) or size < 0 or offset + size > len(body):
            raise BadInput(f"binary_data_size of {_name(tensor)} does not fit the body.", param=_name(tensor))
        binaries.append(body[offset : offset + size])
        if tokens_of_content is not None and tensor.get("datatype") == "BYTES":
            tokens += tokens_of_content * sum(1 for _ in _elements(tensor, binaries[-1]))
        else:
            tokens += _checked_tensor(tensor, binaries[-1], vocabulary)
        offset += size
    if offset != len(body):
        raise BadInput(f"The body has {len(body) - offset} bytes after its last tensor.")
    if longest_row is not None:
        _check_rows(header["inputs"], longest_row)
    for tensor, binary in zip(header["inputs"], binaries, strict=True):
        check_element_count(_name(tensor), tensor, binary)
    return max(tokens, 1)


def _header_length(body: bytes, header_length: str | None) -> int:
    if header_length is None:
        return len(body)
    digits = header_length.isascii() and header_length.isdigit() and len(header_length) <= _LENGTH_DIGITS
    if not digits or int(header_length) > len(body):
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


def _refuse_repeated_names(raw: bytes, header: dict[str, Any]) -> None:
    inputs, outputs = len(header["inputs"]), len(header.get("outputs", []))
    often = dict.fromkeys((b'"shape"', b'"datatype"', b'"data"'), inputs)
    often |= {b'"inputs"': 1, b'"outputs"': 1, b'"name"': inputs + outputs, b'"parameters"': inputs + outputs + 1}
    often |= {b'"binary_data_size"': inputs}
    refuse_repeated_names(raw, often)


def _parameters(tensor: dict[str, Any]) -> dict[str, Any]:
    parameters = tensor.get("parameters", {})
    if not isinstance(parameters, dict):
        raise BadInput(f"`parameters` of {_name(tensor)} must be an object.", param=_name(tensor))
    return parameters


def _name(tensor: dict[str, Any]) -> str:
    name = tensor.get("name")
    return name[:64] if isinstance(name, str) else f"a tensor whose name is {kind_of(name)}"


def _check_rows(tensors: Sequence[dict[str, Any]], longest: int) -> None:
    """Raises BadInput unless these are rows of token ids and their mask, of one shape that the model reads."""
    names = [_name(tensor) for tensor in tensors]
    if sorted(names) != sorted(_ENCODER_INPUTS):
        raise BadInput(f"This model reads input_ids and attention_mask, each once; sent: {', '.join(names[:8])}.")
    shapes = [_row_shape(tensor, longest) for tensor in tensors]
    if shapes[0] != shapes[1]:
        raise BadInput(f"input_ids and attention_mask differ in shape: {shapes[0]} and {shapes[1]}.", param=names[1])


def _row_shape(tensor: dict[str, Any], longest: int) -> list[int]:
    name, shape = _name(tensor), tensor.get("shape")
    if tensor.get("datatype") != "INT64":
        raise BadInput(f"{name} is of type {shown(tensor.get('datatype'))}; it must be INT64.", param=name)
    if not isinstance(shape, list) or len(shape) != 2 or not all(type(size) is int and size > 0 for size in shape):
        raise BadInput(f"{name}: its shape must be [rows, length], both above 0.", param=name)
    if shape[1] > longest:
        raise InputTooLong(f"{name} has rows of {shape[1]} tokens; this model reads at most {longest}.", param=name)
    return shape


def _checked_tensor(tensor: dict[str, Any], binary: bytes, vocabulary: Vocabulary | None) -> int:
    """Its tokens; a mask counts nothing."""
    name, datatype = tensor.get("name"), tensor.get("datatype")
    if datatype == "BYTES":
        return _checked_texts(tensor, binary)
    if name == "input_ids" and datatype == "INT64":
        return _checked_ids(tensor, binary, vocabulary)
    if name == "attention_mask" and datatype == "INT64":
        _check_mask(tensor, binary)
    return 0


def _checked_texts(tensor: dict[str, Any], binary: bytes) -> int:
    count = 0
    for text in _binary_texts(tensor, binary) if binary else _texts_in(tensor.get("data")):
        if "\0" in text:
            raise BadInput(f"{_name(tensor)} contains a NUL character. {NUL_ADVICE}", param=_name(tensor))
        count += len(text)
    return count // _BYTES_PER_TOKEN


def _texts_in(data: Any) -> Iterator[str]:
    """The strings of nested arrays, in no order; whatever else is there Triton refuses itself."""
    waiting = [data]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, str):
            yield value


def _elements(tensor: dict[str, Any], binary: bytes) -> Iterator[bytes | str]:
    return _binary_elements(tensor, binary) if binary else _texts_in(tensor.get("data"))


def _binary_texts(tensor: dict[str, Any], binary: bytes) -> Iterator[str]:
    for element in _binary_elements(tensor, binary):
        try:
            yield element.decode()
        except UnicodeDecodeError as exc:
            raise BadInput(f"{_name(tensor)} contains text that is not UTF-8: {exc}.", param=_name(tensor)) from exc


def _binary_elements(tensor: dict[str, Any], binary: bytes) -> Iterator[bytes]:
    offset = 0
    while offset < len(binary):
        end = offset + 4 + int.from_bytes(binary[offset : offset + 4], "little")
        if offset + 4 > len(binary) or end > len(binary):
            raise BadInput(f"{_name(tensor)}: its elements do not add up to binary_data_size.", param=_name(tensor))
        yield binary[offset + 4 : end]
        offset = end


def _checked_ids(tensor: dict[str, Any], binary: bytes, vocabulary: Vocabulary | None) -> int:
    ids = _integers(tensor, binary)
    if vocabulary is not None and ids.size and not (ids.min() >= 0 and ids.max() < vocabulary.size):
        raise BadInput(f"input_ids must be 0 to {vocabulary.size - 1}.", param="input_ids")
    return int(ids.size)


def _check_mask(tensor: dict[str, Any], binary: bytes) -> None:
    mask = _integers(tensor, binary)
    if mask.size and not (mask.min() >= 0 and mask.max() <= 1):
        raise BadInput("attention_mask must be 1 for a token and 0 for padding.", param="attention_mask")


def _integers(tensor: dict[str, Any], binary: bytes) -> np.ndarray[Any, np.dtype[np.int64]]:
    name = _name(tensor)
    if len(binary) % _ID_BYTES:
        raise BadInput(f"{name}: binary_data_size is no multiple of {_ID_BYTES}.", param=name)
    if binary or "data" not in tensor:
        return np.frombuffer(binary, "<i8")
    try:
        numbers = np.asarray(tensor.get("data"))
    except ValueError as exc:  # rows of different lengths, or nested deeper than an array can be
        raise BadInput(f"{name}: its data is no array of numbers: {exc}.", param=name) from exc
    if numbers.dtype.kind not in "iu":
        raise BadInput(f"{name}: its data must be integers.", param=name)
    return numbers.astype(np.int64)
