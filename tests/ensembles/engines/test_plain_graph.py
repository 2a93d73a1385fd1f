from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from zooserve_ensembles.engines.plain_graph import plain_graph
from zooserve_ensembles.engines.wire import BadWire

IDS = np.array([[1, 2, 3, 4], [5, 6, 0, 0]])
MASK = np.array([[1, 1, 1, 1], [1, 1, 0, 0]])


def outputs(model: bytes) -> list[Any]:
    return list(onnxruntime.InferenceSession(model).run(None, {"input_ids": IDS, "attention_mask": MASK}))


@pytest.mark.parametrize("scale", [0.5, None])
def test_attention_written_out_computes_what_the_fused_operator_does(
    model_bytes: Callable[..., bytes], scale: float | None
) -> None:
    model = model_bytes(scale=scale)
    plain = plain_graph(model)
    assert (plain.rewritten, plain.foreign) == (1, ())
    assert {node.domain for node in onnx.load_from_string(plain.content).graph.node} == {""}
    for found, wanted in zip(outputs(plain.content), outputs(model), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_a_graph_in_standard_operators_keeps_its_bytes(model_bytes: Callable[..., bytes]) -> None:
    model = model_bytes(fused=False)
    plain = plain_graph(model)
    assert plain.content == model
    assert plain.rewritten == 0


def test_tensors_are_what_the_model_declares(model_bytes: Callable[..., bytes]) -> None:
    plain = plain_graph(model_bytes())
    assert [(tensor.name, tensor.dtype, tensor.dims) for tensor in plain.inputs] == [
        ("input_ids", "INT64", (-1, -1)),
        ("attention_mask", "INT64", (-1, -1)),
    ]
    assert [(tensor.name, tensor.dims) for tensor in plain.outputs] == [
        ("sentence_embedding", (-1, 8)),
        ("token_embeddings", (-1, -1, 8)),
    ]


def test_an_operator_that_is_not_written_out_is_named(model_bytes: Callable[..., bytes]) -> None:
    assert plain_graph(model_bytes(operation="MatMulNBits")).foreign == ("com.microsoft.MatMulNBits",)


def test_attention_of_another_form_is_left_and_named(model_bytes: Callable[..., bytes]) -> None:
    model = onnx.load_from_string(model_bytes())
    (node,) = (node for node in model.graph.node if node.domain)
    node.attribute.append(onnx.helper.make_attribute("unidirectional", 1))
    assert plain_graph(model.SerializeToString()).foreign == ("com.microsoft.MultiHeadAttention",)


@pytest.mark.parametrize(
    ("content", "why"), [(b"", "no graph"), (b"\xff\xff", "no protobuf"), (b"\x3a\x7fab", "cut off")]
)
def test_what_is_no_model_is_told(content: bytes, why: str) -> None:
    with pytest.raises(BadWire, match=why):
        plain_graph(content)


def test_a_file_that_ends_too_early_is_told(model_bytes: Callable[..., bytes]) -> None:
    with pytest.raises(BadWire, match="cut off"):
        plain_graph(model_bytes()[:-40])
