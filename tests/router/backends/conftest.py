"""Recorded contracts, and responses that look as tritonclient's do."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

RECORDED = Path(__file__).parent / "recorded"
NUMPY = {"TYPE_STRING": np.object_, "TYPE_UINT32": np.uint32, "TYPE_INT32": np.int32, "TYPE_INT64": np.int64}


@pytest.fixture
def recorded() -> Callable[[str], dict[str, Any]]:
    """A contract as its source declares it."""
    return lambda name: json.loads((RECORDED / f"{name}.json").read_text())


class Response:
    """One message of a stream, with the dtypes and shapes that the contract gives its outputs."""

    def __init__(self, outputs: dict[str, Any], types: dict[str, str], batched: bool) -> None:
        self._outputs = outputs
        self._types = types
        self._batched = batched

    def as_numpy(self, name: str) -> Any:
        if name not in self._outputs:
            return None
        value = self._outputs[name]
        value = value.encode() if isinstance(value, str) else value
        array = np.array([value], dtype=NUMPY[self._types[name]])
        return array.reshape(1, 1) if self._batched and self._types[name] != "TYPE_STRING" else array


@pytest.fixture
def responses(recorded: Callable[[str], dict[str, Any]]) -> Callable[..., list[Response]]:
    """The responses of a stream, from the plain values of their outputs."""

    def made(contract: str, *outputs: dict[str, Any]) -> list[Response]:
        types = {name: tensor["type"] for name, tensor in recorded(contract)["outputs"].items()}
        return [Response(each, types, batched=contract == "engine_path") for each in outputs]

    return made
