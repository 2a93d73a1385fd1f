"""A BERT encoder written as an ONNX graph from its weights, without torch.

Weights go by the names they have in a BertModel's state dict (`encoder.layer.0.attention.self.query.weight`), each an
array or, for a dense layer or the word table, `Blocks4`: 4-bit weights that are kept as they are. What follows the
encoder (pooling, a head) is written behind it by the builder that wants it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from zooserve_ensembles.graphs.blocks4 import Blocks4
from zooserve_ensembles.graphs.writing import Graph

__all__ = ["Array", "Shape", "Weights", "dense", "gelu", "layer_norm", "write_encoder"]

Array = npt.NDArray[Any]
Weights = Mapping[str, "Array | Blocks4"]

MASKED = -10_000.0
"""Added to the score of a padding token: its share is exactly 0, and a row of padding alone still has no NaN."""


@dataclass(frozen=True)
class Shape:
    """What the weights do not tell."""

    layers: int
    heads: int
    epsilon: float = 1e-12


def write_encoder(graph: Graph, weights: Weights, shape: Shape, *, token_types: bool = False) -> str:
    """Write the encoder; answers the name of its last hidden states, [batch, length, width].

    It reads `input_ids` and `attention_mask`, and with `token_types` also `token_type_ids`; else every token is of
    type 0. A text of more tokens than the position table has rows fails.
    """
    bias = _mask_bias(graph)
    hidden = _embeddings(graph, weights, shape, token_types=token_types)
    for number in range(shape.layers):
        hidden = _layer(graph, weights, shape, f"encoder.layer.{number}", hidden, bias)
    return hidden


def dense(graph: Graph, weights: Weights, name: str, given: str) -> str:
    """The linear layer of that name."""
    weight = weights[f"{name}.weight"]
    if isinstance(weight, Blocks4):
        product = weight.multiply(graph, f"{name}.weight", given, f"{name}/product")
    else:
        kernel = graph.constant(f"{name}.weight", weight.T)
        product = graph.node("MatMul", [given, kernel], f"{name}/product")
    return graph.node("Add", [product, _kept(graph, weights, f"{name}.bias")], f"{name}/output")


def gelu(graph: Graph, name: str, given: str) -> str:
    """The exact one, x/2 (1 + erf(x / sqrt 2)), in the form that ONNX Runtime fuses."""
    scaled = graph.node("Div", [given, graph.constant("sqrt_2", math.sqrt(2))], f"{name}/scaled")
    shifted = graph.node("Add", [graph.node("Erf", [scaled], f"{name}/erf"), graph.constant("one", 1)], f"{name}/shift")
    doubled = graph.node("Mul", [given, shifted], f"{name}/doubled")
    return graph.node("Mul", [doubled, graph.constant("half", 0.5)], f"{name}/gelu")


def layer_norm(graph: Graph, weights: Weights, shape: Shape, name: str, given: str) -> str:
    """The layer normalisation of that name, over the last axis."""
    scale, bias = (_kept(graph, weights, f"{name}.{part}") for part in ("weight", "bias"))
    return graph.node("LayerNormalization", [given, scale, bias], f"{name}/output", axis=-1, epsilon=shape.epsilon)


def _kept(graph: Graph, weights: Weights, name: str) -> str:
    return graph.constant(name, np.asarray(weights[name]))


def _mask_bias(graph: Graph) -> str:
    """[batch, 1, 1, length]: 0 where a token is, MASKED where padding is."""
    mask = graph.node("Cast", ["attention_mask"], "mask/float", to=TensorProto.FLOAT)
    wide = graph.node("Unsqueeze", [mask, graph.constant("axes_1_2", [1, 2], np.int64)], "mask/wide")
    absent = graph.node("Sub", [graph.constant("one", 1), wide], "mask/absent")
    return graph.node("Mul", [absent, graph.constant("masked", MASKED)], "mask/bias")


def _embeddings(graph: Graph, weights: Weights, shape: Shape, *, token_types: bool) -> str:
    words = weights["embeddings.word_embeddings.weight"]
    positions = np.asarray(weights["embeddings.position_embeddings.weight"])
    types = np.asarray(weights["embeddings.token_type_embeddings.weight"])
    if isinstance(words, Blocks4):
        summed = words.gather(graph, "embeddings.word_embeddings.weight", "input_ids", "embeddings/words")
    else:
        summed = graph.node(
            "Gather", [_kept(graph, weights, "embeddings.word_embeddings.weight"), "input_ids"], "words"
        )
    if token_types:
        table = graph.constant("embeddings.token_type_embeddings.weight", types)
        kinds = graph.node("Gather", [table, "token_type_ids"], "embeddings/kinds")
        summed = graph.node("Add", [summed, kinds], "embeddings/typed")
    else:
        positions = positions + types[0]
    summed = graph.node("Add", [summed, _first_positions(graph, positions)], "embeddings/sum")
    return layer_norm(graph, weights, shape, "embeddings.LayerNorm", summed)


def _first_positions(graph: Graph, positions: Array) -> str:
    """As many rows of the table as a text has tokens."""
    table = graph.constant("embeddings.position_embeddings.weight", positions)
    size = graph.node("Shape", ["input_ids"], "embeddings/size", start=1, end=2)
    return graph.node("Slice", [table, graph.constant("zeros_1", [0], np.int64), size], "embeddings/positions")


def _layer(graph: Graph, weights: Weights, shape: Shape, name: str, given: str, bias: str) -> str:
    attended = dense(
        graph, weights, f"{name}.attention.output.dense", _attention(graph, weights, shape, name, given, bias)
    )
    attended = graph.node("Add", [attended, given], f"{name}/attention_residual")
    attended = layer_norm(graph, weights, shape, f"{name}.attention.output.LayerNorm", attended)
    between = gelu(graph, name, dense(graph, weights, f"{name}.intermediate.dense", attended))
    output = graph.node("Add", [dense(graph, weights, f"{name}.output.dense", between), attended], f"{name}/residual")
    return layer_norm(graph, weights, shape, f"{name}.output.LayerNorm", output)


def _attention(graph: Graph, weights: Weights, shape: Shape, name: str, given: str, bias: str) -> str:
    """Every token's mixture of the values of the tokens that are no padding, [batch, length, width]."""
    width = np.asarray(weights["embeddings.LayerNorm.weight"]).shape[0]
    apart = graph.constant("heads_apart", [0, 0, shape.heads, width // shape.heads], np.int64)
    together = graph.constant("heads_together", [0, 0, width], np.int64)

    def heads(part: str, order: list[int]) -> str:
        flat = dense(graph, weights, f"{name}.attention.self.{part}", given)
        split = graph.node("Reshape", [flat, apart], f"{name}/{part}/split")
        return graph.node("Transpose", [split], f"{name}/{part}/heads", perm=order)

    query, key, value = heads("query", [0, 2, 1, 3]), heads("key", [0, 2, 3, 1]), heads("value", [0, 2, 1, 3])
    scale = graph.constant("attention_scale", math.sqrt(shape.heads / width))
    scores = graph.node("Mul", [graph.node("MatMul", [query, key], f"{name}/raw"), scale], f"{name}/scaled_scores")
    shares = graph.node("Softmax", [graph.node("Add", [scores, bias], f"{name}/scores")], f"{name}/shares", axis=-1)
    mixed = graph.node("MatMul", [shares, value], f"{name}/mixed")
    rows = graph.node("Transpose", [mixed], f"{name}/rows", perm=[0, 2, 1, 3])
    return graph.node("Reshape", [rows, together], f"{name}/context")
