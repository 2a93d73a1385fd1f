"""The sparse encoder against its head in NumPy, over the hidden states of the encoder that `test_bert` holds."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest

from zooserve_ensembles.graphs.bert import Shape, write_encoder
from zooserve_ensembles.graphs.safetensors import read_safetensors
from zooserve_ensembles.graphs.sparse_encoder import KEPT, write_sparse_encoder
from zooserve_ensembles.graphs.writing import IDS, Graph, floats, int64s

WORDS, POSITIONS, WIDTH = 80, 16, 32
SHAPE = Shape(layers=1, heads=2)
RNG = np.random.default_rng(3)
Array = npt.NDArray[Any]


def random_array(*sizes: int) -> Array:
    return RNG.normal(0, 0.4, sizes).astype(np.float32)


def random_weights() -> dict[str, Array]:
    layer = "bert.encoder.layer.0"
    square = [f"{layer}.attention.self.{part}" for part in ("query", "key", "value")]
    square += [f"{layer}.attention.output.dense", f"{layer}.intermediate.dense", f"{layer}.output.dense"]
    norms = [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm", "bert.embeddings.LayerNorm"]
    weights = {
        "bert.embeddings.word_embeddings.weight": random_array(WORDS, WIDTH),
        "bert.embeddings.position_embeddings.weight": random_array(POSITIONS, WIDTH),
        "bert.embeddings.token_type_embeddings.weight": random_array(2, WIDTH),
        "cls.predictions.bias": random_array(WORDS) - 1,
    }
    for name in [*square, "cls.predictions.transform.dense"]:
        weights |= {f"{name}.weight": random_array(WIDTH, WIDTH), f"{name}.bias": random_array(WIDTH)}
    for name in [*norms, "cls.predictions.transform.LayerNorm"]:
        weights |= {f"{name}.weight": 1 + random_array(WIDTH), f"{name}.bias": random_array(WIDTH)}
    return weights


WEIGHTS = random_weights()


def hidden_states(ids: Array) -> Array:
    graph = Graph("encoder")
    hidden = write_encoder(graph, {name.removeprefix("bert."): array for name, array in WEIGHTS.items()}, SHAPE)
    content = graph.serialized(
        int64s(dict.fromkeys(("input_ids", "attention_mask"), IDS)), floats({hidden: [*IDS, WIDTH]})
    )
    feed = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    return np.asarray(onnxruntime.InferenceSession(content).run(None, feed)[0], np.float64)


def dense_weights(text: list[int]) -> Array:
    """The weight of every word, by the definition."""
    name = "cls.predictions.transform"
    given = hidden_states(np.array([text]))[0] @ WEIGHTS[f"{name}.dense.weight"].T + WEIGHTS[f"{name}.dense.bias"]
    given = given / 2 * (1 + np.vectorize(math.erf)(given / math.sqrt(2)))
    centred = given - given.mean(-1, keepdims=True)
    given = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + SHAPE.epsilon)
    given = given * WEIGHTS[f"{name}.LayerNorm.weight"] + WEIGHTS[f"{name}.LayerNorm.bias"]
    logits = given @ WEIGHTS["bert.embeddings.word_embeddings.weight"].T + WEIGHTS["cls.predictions.bias"]
    return np.asarray(np.log1p(np.maximum(logits, 0)).max(axis=0))


def sparse_rows(texts: list[list[int]], kept: int) -> tuple[Array, Array]:
    session = onnxruntime.InferenceSession(write_sparse_encoder(WEIGHTS, SHAPE, kept))
    length = max(map(len, texts))
    mask = np.array([[1] * len(text) + [0] * (length - len(text)) for text in texts])
    ids = np.array([text + [7] * (length - len(text)) for text in texts])
    indices, values = session.run(["indices", "values"], {"input_ids": ids, "attention_mask": mask})
    return indices, values


def test_every_word_that_has_a_weight_has_the_one_of_the_definition() -> None:
    texts = [[1, 5, 9, 2], [3], [4, 4, 60, 61, 62, 63, 2]]
    for text, indices, values in zip(texts, *sparse_rows(texts, WORDS), strict=True):
        wanted = dense_weights(text)
        assert 0 < (wanted > 0).sum() < WORDS, "the example shows nothing"
        found = np.zeros(WORDS)
        found[indices[indices >= 0]] = values[indices >= 0]
        np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_the_heaviest_words_are_kept_and_the_rest_of_a_row_is_marked_empty() -> None:
    (few,), _ = sparse_rows([[1, 5, 9, 2]], 3)
    assert few.tolist() == np.argsort(-dense_weights([1, 5, 9, 2]))[:3].tolist()
    (all_words,), (values,) = sparse_rows([[1, 5, 9, 2]], WORDS)
    assert all_words.dtype == np.int32
    np.testing.assert_array_equal(all_words < 0, values == 0)
    assert (np.diff(values) <= 0).all()


def test_the_placed_graph_keeps_as_many_words_as_the_pipeline_says(
    placed: Callable[[str], Path], run_graph: Callable[..., dict[str, Array]]
) -> None:
    ids = np.array([[101, 7592, 102]])
    found = run_graph(placed("zoo/embed_sparse_encoder/1/model.onnx"), input_ids=ids, attention_mask=np.ones_like(ids))
    assert found["indices"].shape == found["values"].shape == (1, KEPT)


def safetensors(header: dict[str, Any], data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def test_tensors_of_a_safetensors_file_are_found_by_name() -> None:
    data = np.arange(6, dtype="<f4").tobytes() + np.array([7], "<i8").tobytes()
    entries = {
        "__metadata__": {"format": "pt"},
        "matrix": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "number": {"dtype": "I64", "shape": [1], "data_offsets": [24, 32]},
    }
    found = read_safetensors(safetensors(entries, data))
    assert found["matrix"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found["number"].tolist() == [7]


def test_a_type_that_is_not_known_is_named() -> None:
    entries = {"half": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}
    with pytest.raises(ValueError, match="half is BF16"):
        read_safetensors(safetensors(entries, b"\0\0"))
