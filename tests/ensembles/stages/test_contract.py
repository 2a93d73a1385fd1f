"""A stage's outputs against its configuration."""

from typing import Any

import numpy as np
import pytest

from zooserve_ensembles.stages.contract import BrokenContract, check_outputs, read_outputs

CONFIG: dict[str, Any] = {
    "max_batch_size": 64,
    "output": [
        {"name": "input_ids", "data_type": "TYPE_INT64", "dims": ["-1"]},
        {"name": "tokens", "data_type": "TYPE_INT32", "dims": ["1"]},
        {"name": "language", "data_type": "TYPE_STRING", "dims": ["1"]},
    ],
}


def outputs(**changed: Any) -> dict[str, Any]:
    right = {
        "input_ids": np.zeros((2, 16), np.int64),
        "tokens": np.zeros((2, 1), np.int32),
        "language": np.array([["en"], ["de"]], object),
    }
    return {name: array for name, array in {**right, **changed}.items() if array is not None}


def test_outputs_as_declared_pass() -> None:
    check_outputs(outputs(), read_outputs(CONFIG))
    check_outputs(outputs(language=np.array([[b"en"], [b"de"]])), read_outputs(CONFIG))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"tokens": None}, "it made no tokens"),
        ({"input_ids": np.zeros((2, 16))}, "it made input_ids as float64 [2, 16]; its configuration says TYPE_INT64"),
        (
            {"tokens": np.zeros((2, 7), np.int32)},
            r"it made tokens as int32 [2, 7]; its configuration says TYPE_INT32 [-1, 1]",
        ),
        ({"tokens": np.zeros(2, np.int32)}, "it made tokens as int32 [2]"),
        ({"language": np.zeros((2, 1), np.float32)}, "it made language as float32"),
    ],
)
def test_anything_else_is_told_with_what_was_declared(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(BrokenContract) as broken:
        check_outputs(outputs(**changed), read_outputs(CONFIG))
    assert told in str(broken.value)


def test_a_model_without_batches_has_no_rows() -> None:
    config = {"max_batch_size": 0, "output": [{"name": "x", "data_type": "TYPE_FP32", "dims": ["2", "3"]}]}
    check_outputs({"x": np.zeros((2, 3), np.float32)}, read_outputs(config))
    with pytest.raises(BrokenContract):
        check_outputs({"x": np.zeros((1, 2, 3), np.float32)}, read_outputs(config))
