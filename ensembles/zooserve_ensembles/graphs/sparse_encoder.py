"""SPLADE: a BERT encoder with its masked-language head; a text's weight of each word of the vocabulary, the largest K.

A word's weight is the largest log(1 + relu(logit)) that any token of the text gives it. Of the 30,522 logits of every
token only their largest is kept before anything else is done: nothing after it changes their order. The dense row of
weights never leaves the graph.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from zooserve_ensembles.graphs.bert import Shape, Weights, dense, gelu, layer_norm, write_encoder
from zooserve_ensembles.graphs.safetensors import read_safetensors
from zooserve_ensembles.graphs.writing import IDS, Graph, floats, int64s

__all__ = ["KEPT", "build", "write_sparse_encoder"]

KEPT = 256
"""Words kept of each text, heaviest first; fewer have a weight above zero, and the rest are -1 and 0."""

_TABLE = "embeddings.word_embeddings.weight"


def build(inputs: Mapping[str, Path]) -> bytes:
    """`input_ids` and `attention_mask` to `indices` and `values`, [batch, KEPT], of `model.safetensors`."""
    config = json.loads(inputs["config.json"].read_text(encoding="utf-8"))
    shape = Shape(config["num_hidden_layers"], config["num_attention_heads"], config["layer_norm_eps"])
    found = read_safetensors(inputs["model.safetensors"].read_bytes())
    return write_sparse_encoder({_modern(name): array for name, array in found.items()}, shape, KEPT)


def write_sparse_encoder(weights: Weights, shape: Shape, kept: int) -> bytes:
    """The graph of a BertForMaskedLM whose output layer is its word table."""
    graph = Graph("sparse_encoder")
    encoder = {name.removeprefix("bert."): weight for name, weight in weights.items()}
    hidden = write_encoder(graph, encoder, shape)
    hidden = gelu(graph, "head", dense(graph, weights, "cls.predictions.transform.dense", hidden))
    hidden = layer_norm(graph, weights, shape, "cls.predictions.transform.LayerNorm", hidden)
    table = graph.node("Transpose", [_TABLE], "head/table", perm=[1, 0])
    products = graph.node("MatMul", [_without_padding(graph, hidden), table], "head/products")
    largest = graph.node("ReduceMax", [products, graph.constant("axis_1", [1], np.int64)], "head/largest", keepdims=0)
    bias = graph.constant("cls.predictions.bias", np.asarray(weights["cls.predictions.bias"]))
    positive = graph.node("Relu", [graph.node("Add", [largest, bias], "head/logits")], "head/positive")
    plus_one = graph.node("Add", [positive, graph.constant("one", 1)], "head/plus_one")
    _write_heaviest(graph, graph.node("Log", [plus_one], "head/weights"), kept)
    return graph.serialized(
        int64s({"input_ids": IDS, "attention_mask": IDS}),
        [
            helper.make_tensor_value_info("indices", TensorProto.INT32, ["batch", kept]),
            *floats({"values": ["batch", kept]}),
        ],
    )


def _modern(name: str) -> str:
    """The name as today's libraries have it."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def _without_padding(graph: Graph, hidden: str) -> str:
    """Every padding token replaced by the text's first one, which changes no maximum."""
    last = graph.constant("axis_2", [2], np.int64)
    present = graph.node("Cast", ["attention_mask"], "padding/present", to=TensorProto.BOOL)
    zero, one, axis = (graph.constant(f"index_{place}", [place], np.int64) for place in (0, 1, 1))
    first = graph.node("Slice", [hidden, zero, one, axis], "padding/first")
    return graph.node(
        "Where", [graph.node("Unsqueeze", [present, last], "padding/wide"), hidden, first], "padding/none"
    )


def _write_heaviest(graph: Graph, weights: str, kept: int) -> None:
    count = graph.constant("kept", [kept], np.int64)
    graph.nodes.append(helper.make_node("TopK", [weights, count], ["values", "top/places"], axis=-1))
    places = graph.node("Cast", ["top/places"], "top/int32", to=TensorProto.INT32)
    heavy = graph.node("Greater", ["values", graph.constant("zero", 0)], "top/heavy")
    graph.node("Where", [heavy, places, graph.constant("nowhere", -1, np.int32)], "indices")
