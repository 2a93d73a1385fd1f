"""The binary inference body, both ways, and against tritonclient's own reading of it."""

import numpy as np
import orjson
import pytest
from tritonclient.http import InferResult

from zooserve.triton.tensors import decode_answer, encode_request, text_tensor, token_tensor


def answer_of(**outputs: tuple[str, np.ndarray]) -> tuple[bytes, int]:
    described = [
        {"name": name, "datatype": kind, "shape": list(array.shape), "parameters": {"binary_data_size": array.nbytes}}
        for name, (kind, array) in outputs.items()
    ]
    header = orjson.dumps({"model_name": "m", "model_version": "3", "outputs": described})
    return header + b"".join(array.tobytes() for _, array in outputs.values()), len(header)


def test_texts_carry_their_length_in_bytes_not_characters():
    tensor = text_tensor("text", ["ä", ""])
    assert tensor.shape == (2, 1)
    assert tensor.data == b"\2\0\0\0\xc3\xa4\0\0\0\0"


def test_token_rows_become_little_endian_int64_whatever_they_were():
    tensor = token_tensor("input_ids", np.array([[1, 2], [3, 4]], dtype=">i4").T)
    assert tensor.shape == (2, 2)
    assert np.frombuffer(tensor.data, "<i8").tolist() == [1, 3, 2, 4]


def test_the_header_describes_what_follows_it():
    text, ids = text_tensor("text", ["hi"]), token_tensor("ids", np.ones((1, 2)))
    body, length = encode_request((text, ids), ("a", "b"), request_id="r", timeout_us=5)
    header = orjson.loads(body[:length])
    assert header["id"] == "r"
    assert header["parameters"] == {"timeout": 5}
    assert [tensor["parameters"]["binary_data_size"] for tensor in header["inputs"]] == [6, 16]
    assert [output["name"] for output in header["outputs"]] == ["a", "b"]
    assert body[length:] == text.data + ids.data


def test_an_answer_is_read_as_tritonclient_reads_it():
    vectors = np.arange(6, dtype="<f4").reshape(2, 3)
    body, length = answer_of(embedding=("FP32", vectors), tokens=("INT32", np.array([[7], [8]], dtype="<i4")))
    ours = decode_answer(body, length)
    theirs = InferResult.from_response_body(body, header_length=length)
    assert (ours.model, ours.version) == ("m", "3")
    for name in ("embedding", "tokens"):
        assert np.array_equal(ours.outputs[name], theirs.as_numpy(name))


@pytest.mark.parametrize(
    ("body", "length"),
    [
        (b"{}", 2),
        (b"[]", 2),
        (b"not json", 8),
        (b'{"outputs":[{"name":"a","datatype":"FP32","shape":[1]}]}', 56),
        (b'{"outputs":[{"name":"a","datatype":"X","shape":[1],"parameters":{"binary_data_size":4}}]}', 89),
        (b'{"outputs":[{"name":"a","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4}}]}', 92),
        (b'{"outputs":[{"name":"a","datatype":"FP32","shape":[9],"parameters":{"binary_data_size":0}}]}', 92),
    ],
)
def test_what_is_no_answer_is_a_value_error(body, length):
    with pytest.raises(ValueError, match=r".+"):
        decode_answer(body, length)
