"""What crashed Triton, or was a server error of its, is refused before it is sent."""

import json

import orjson
import pytest

from zooserve.errors import BadInput
from zooserve_router.kserve_body import checked_body

IDS = {"name": "input_ids", "shape": [1, 4], "datatype": "INT64", "data": [1, 1, 1, 1]}
MASK = {**IDS, "name": "attention_mask"}
TEXT = {"name": "text", "shape": [1, 1], "datatype": "BYTES", "data": ["hello"]}


def refused(vocabulary, header, longest=None) -> str:
    with pytest.raises(BadInput) as caught:
        checked_body(json.dumps(header).encode(), None, vocabulary, longest)
    return caught.value.message


@pytest.mark.parametrize(
    "shape",
    [
        [1, 2**62], [2**61, 4], [1, 100_000_000], [2**62, 1], [1, 5], [-1, 4], [0, 4], [1.5, 4], [True, 4],
        "1,4", None, [[1], 4], [10**30, 4], [],
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["input_ids", "attention_mask"])
def test_a_shape_that_its_data_does_not_have_is_refused(vocabulary, name, shape) -> None:
    tensors = {"input_ids": IDS, "attention_mask": MASK}
    tensors[name] = {**tensors[name], "shape": shape}
    assert name in refused(vocabulary, {"inputs": list(tensors.values())})


@pytest.mark.parametrize("data", [[1], [None], [True], [{}], 5, ["a", "b"], []])
def test_elements_that_are_no_string_or_too_many_are_refused(vocabulary, data) -> None:
    assert "text" in refused(vocabulary, {"inputs": [{**TEXT, "data": data}]})


@pytest.mark.parametrize(
    "field",
    [
        {"id": 5}, {"parameters": 5}, {"parameters": {"timeout": "x"}}, {"parameters": {"timeout": -1}},
        {"parameters": {"priority": 1.5}}, {"parameters": {"timeout": 2**63}},
        {"parameters": {"binary_data_output": 5}},
        {"outputs": [{"name": 5}]}, {"outputs": [{}]},
        {"outputs": [{"name": "x", "parameters": {"binary_data": "x"}}]},
    ],
)  # fmt: skip
def test_a_field_of_another_type_is_refused(vocabulary, field) -> None:
    refused(vocabulary, {"inputs": [TEXT], **field})


@pytest.mark.parametrize("datatype", ["STRING", "int64", 5, None, ""])
def test_an_unknown_datatype_is_refused(vocabulary, datatype) -> None:
    assert "datatype" in refused(vocabulary, {"inputs": [{**TEXT, "datatype": datatype}]})


@pytest.mark.parametrize(
    "raw",
    [
        b'{"inputs":[%s],"inputs":[%s]}',
        b'{"inputs":[%s],"\\u0069nputs":[%s]}',
    ],
)
def test_a_name_that_stands_twice_is_refused(vocabulary, raw) -> None:
    bad, good = orjson.dumps({**IDS, "data": [999_999] * 4}), orjson.dumps(TEXT)
    with pytest.raises(BadInput, match="twice"):
        checked_body(raw % (bad, good), None, vocabulary)


def test_a_tensor_with_two_kinds_of_data_is_refused(vocabulary) -> None:
    raw = orjson.dumps({"inputs": [TEXT]}).replace(b'"data":["hello"]', b'"data":[1],"data":["hello"]')
    with pytest.raises(BadInput, match="twice"):
        checked_body(raw, None, vocabulary)


def test_what_tritonclient_sends_is_let_through(vocabulary) -> None:
    whole = {"id": "1", "parameters": {"timeout": 5, "binary_data_output": True}}
    outputs = [{"name": "embedding", "parameters": {"binary_data": True}}]
    assert checked_body(orjson.dumps({**whole, "inputs": [TEXT], "outputs": outputs}), None, vocabulary) > 0
    assert checked_body(orjson.dumps({"inputs": [IDS, MASK]}), None, vocabulary, 256) > 0
    odd = {**TEXT, "data": ['"inputs" "inputs" "name" \\u0041']}
    assert checked_body(orjson.dumps({"inputs": [odd]}), None, vocabulary) > 0
