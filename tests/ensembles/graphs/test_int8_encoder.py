"""The int8 encoder against the same encoder in floats: near it, and the same in any company."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from zooserve_ensembles.graphs.int8_encoder import WEIGHT_STEPS, quantise

WORDS, WIDTH, OUT = 50, 64, 48
RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(WORDS, WIDTH)).astype(np.float32)
MATRIX = RNG.normal(size=(WIDTH, OUT)).astype(np.float32)
Array = npt.NDArray[Any]


def looked_up_and_multiplied(outlier: float = 1.0) -> onnx.ModelProto:
    """ids -> rows of a table -> times a matrix. Word 0 is as large as asked for."""
    table = TABLE.copy()
    table[0] *= outlier
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "input_ids"], ["words"]),
            helper.make_node("MatMul", ["words", "matrix"], ["result"]),
        ],
        "small",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "length"])],
        [helper.make_tensor_value_info("result", TensorProto.FLOAT, ["batch", "length", OUT])],
        [numpy_helper.from_array(table, "table"), numpy_helper.from_array(MATRIX, "matrix")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def run(model: onnx.ModelProto, ids: Array) -> Array:
    onnx.checker.check_model(model, full_check=True)
    return np.asarray(onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"input_ids": ids})[0])


def test_results_are_near_those_in_floats() -> None:
    model = looked_up_and_multiplied()
    quantise(model)
    ids = RNG.integers(0, WORDS, (3, 7))
    wanted, found = TABLE[ids] @ MATRIX, run(model, ids)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() < 0.02 * np.abs(wanted).max()
    assert np.abs(found - wanted).max() > 0, "nothing was quantised"


def test_a_loud_batch_mate_changes_nothing() -> None:
    model = looked_up_and_multiplied(outlier=1000.0)
    quantise(model)
    quiet, loud = np.array([[1, 2, 3]]), np.array([[0, 0, 0]])
    alone, together = run(model, quiet), run(model, np.concatenate([quiet, loud]))
    np.testing.assert_array_equal(alone[0], together[0])


def test_weights_keep_within_seven_bits() -> None:
    model = looked_up_and_multiplied()
    quantise(model)
    digits = next(numpy_helper.to_array(one) for one in model.graph.initializer if one.name == "matrix/digits")
    assert digits.dtype == np.int8
    assert np.abs(digits).max() == WEIGHT_STEPS


def test_a_row_of_zeros_stays_zero() -> None:
    model = looked_up_and_multiplied(outlier=0.0)
    quantise(model)
    assert not run(model, np.array([[0]])).any()


def test_the_placed_encoder_has_the_same_vector_alone_and_among_others(
    placed: Callable[[str], Path], run_graph: Callable[..., dict[str, Array]]
) -> None:
    graph = placed("zoo/embed_int8_encoder/1/model.onnx")
    ids, mask = RNG.integers(1000, 20_000, (32, 16)), np.ones((32, 16), np.int64)
    together = run_graph(graph, input_ids=ids, attention_mask=mask)["sentence_embedding"]
    for row in range(0, 32, 8):
        alone = run_graph(graph, input_ids=ids[row : row + 1], attention_mask=mask[:1])["sentence_embedding"]
        np.testing.assert_allclose(alone[0], together[row], atol=1e-6)
