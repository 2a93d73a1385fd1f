from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from onnx_contract import check_contract, declared_tensors
from onnx_session import ModelUnusable


@dataclass
class Tensor:
    name: str
    type: str
    shape: Sequence[int | str | None]


IDS = Tensor("ids", "tensor(int64)", ["batch", "length"])
VECTOR = Tensor("vector", "tensor(float)", ["batch", 384])


def config(ids: str = "TYPE_INT64", dims: Sequence[int | str] = (-1,), vector: Sequence[int | str] = (384,)) -> Any:
    return {
        "input": [{"name": "ids", "data_type": ids, "dims": list(dims)}],
        "output": [{"name": "vector", "data_type": "TYPE_FP32", "dims": list(vector)}],
    }


def test_a_configuration_that_fits_is_accepted_also_with_sizes_as_strings() -> None:
    check_contract(config(dims=("-1",), vector=("384",)), [IDS], [VECTOR], batched=True)


def test_a_fixed_size_may_stand_where_the_file_leaves_it_open() -> None:
    check_contract(config(dims=(100,)), [IDS], [VECTOR], batched=True)


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        (config(ids="TYPE_INT32"), r"input ids as TYPE_INT32; the file has TYPE_INT64"),
        (config(dims=(-1, 2)), r"input ids as \[-1, 2\]; the file has \[-1\]"),
        (config(vector=(768,)), r"output vector as \[768\]; the file has \[384\]"),
        ({"input": [], "output": []}, r"the file needs the inputs ids; config declares no ids"),
    ],
)
def test_what_does_not_fit_is_named(declared: Any, says: str) -> None:
    with pytest.raises(ModelUnusable, match=says):
        check_contract(declared, [IDS], [VECTOR], batched=True)


def test_a_fixed_first_size_cannot_be_batched() -> None:
    with pytest.raises(ModelUnusable, match="its first size is fixed"):
        check_contract(config(), [Tensor("ids", "tensor(int64)", [1, "length"])], [VECTOR], batched=True)


def test_a_file_is_declared_as_it_is() -> None:
    assert declared_tensors([IDS, VECTOR], batched=True) == [
        {"name": "ids", "data_type": "TYPE_INT64", "dims": [-1]},
        {"name": "vector", "data_type": "TYPE_FP32", "dims": [384]},
    ]
    assert declared_tensors([VECTOR], batched=False)[0]["dims"] == [-1, 384]


def test_a_type_that_triton_cannot_carry_is_refused() -> None:
    with pytest.raises(ModelUnusable, match=r"tensor\(complex64\), which Triton cannot carry"):
        declared_tensors([Tensor("x", "tensor(complex64)", [1])], batched=False)
