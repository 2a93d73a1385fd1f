"""Recorded contracts, and responses as tritonclient hands them out."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import InferResult
from tritonclient.grpc.service_pb2 import ModelInferResponse
from tritonclient.utils import serialize_byte_tensor

RECORDED = Path(__file__).parent / "recorded"
NUMPY = {"TYPE_STRING": np.object_, "TYPE_UINT32": np.uint32, "TYPE_INT32": np.int32, "TYPE_INT64": np.int64}


@pytest.fixture
def recorded() -> Callable[[str], dict[str, Any]]:
    """A contract as its source declares it."""
    return lambda name: json.loads((RECORDED / f"{name}.json").read_text())


def response(outputs: dict[str, Any], types: dict[str, str], *, batched: bool) -> InferResult:
    """One message of a stream, with the dtypes and shapes that the contract gives its outputs."""
    message = ModelInferResponse()
    for name, value in outputs.items():
        array = np.array([value.encode() if isinstance(value, str) else value], dtype=NUMPY[types[name]])
        array = array.reshape(1, 1) if batched and types[name] != "TYPE_STRING" else array
        datatype = types[name].removeprefix("TYPE_").replace("STRING", "BYTES")
        message.outputs.add(name=name, datatype=datatype, shape=array.shape)
        raw = serialize_byte_tensor(array).item() if datatype == "BYTES" else array.tobytes()
        message.raw_output_contents.append(raw)
    return InferResult(message)


@pytest.fixture
def responses(recorded: Callable[[str], dict[str, Any]]) -> Callable[..., list[InferResult]]:
    """The responses of a stream, from the plain values of their outputs."""

    def made(contract: str, *outputs: dict[str, Any]) -> list[InferResult]:
        types = {name: tensor["type"] for name, tensor in recorded(contract)["outputs"].items()}
        return [response(each, types, batched=contract == "engine_path") for each in outputs]

    return made
