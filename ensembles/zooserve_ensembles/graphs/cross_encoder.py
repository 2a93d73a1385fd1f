"""The small cross-encoder: the published body's word table, our trained layers, and the score behind them."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from zooserve_ensembles.graphs.bert import Shape, write_encoder
from zooserve_ensembles.graphs.safetensors import read_safetensors
from zooserve_ensembles.graphs.writing import IDS, Graph, floats, int64s

__all__ = ["HEAD", "POSITIONS", "SHAPE", "build"]

HEAD = Path(__file__).parent.parent / "heads" / "cross_encoder.npz"
"""The trained part, in halves; `ensembles/training/cross_encoder.py` makes it."""
SHAPE = Shape(layers=2, heads=2)
POSITIONS = 256
"""Tokens that it reads, and rows of the position table that were trained."""

WORDS = "embeddings.word_embeddings.weight"


def build(inputs: Mapping[str, Path]) -> bytes:
    """The graph `input_ids`, `attention_mask`, `token_type_ids` -> `score` [batch, 1], the sigmoid of the logit."""
    with np.load(inputs.get("cross_encoder.npz", HEAD), allow_pickle=False) as head:
        trained = {name: head[name].astype(np.float32) for name in head.files}
    graph = Graph("cross_encoder")
    body = read_safetensors(inputs["model.safetensors"].read_bytes())
    weights = trained | {WORDS: body[f"bert.{WORDS}"]}
    hidden = write_encoder(graph, weights, SHAPE, token_types=True)
    first = graph.node("Gather", [hidden, graph.constant("first", 0, np.int64)], "first_token", axis=1)
    kernel = graph.constant("score.weight", trained["score.weight"].T)
    logit = graph.node("Gemm", [first, kernel, graph.constant("score.bias", trained["score.bias"])], "logit")
    graph.node("Sigmoid", [logit], "score")
    given = dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), IDS)
    return graph.serialized(int64s(given), floats({"score": ("batch", 1)}))
