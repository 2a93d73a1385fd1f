"""The small cross-encoder: the published body's word table, our trained layers, and the score behind them."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from zooserve_ensembles.graphs.bert import Shape, write_encoder
from zooserve_ensembles.graphs.safetensors import read_safetensors
from zooserve_ensembles.graphs.writing import IDS, Graph, floats, int64s

__all__ = ["HEAD", "POSITIONS", "SHAPE", "WORDS", "build", "read_words"]

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
    weights = trained | {WORDS: read_words(inputs["model.safetensors"])}
    hidden = write_encoder(graph, weights, SHAPE, token_types=True)
    first = graph.node("Gather", [hidden, graph.constant("first", 0, np.int64)], "first_token", axis=1)
    kernel = graph.constant("score.weight", trained["score.weight"].T)
    logit = graph.node("Gemm", [first, kernel, graph.constant("score.bias", trained["score.bias"])], "logit")
    graph.node("Sigmoid", [logit], "score")
    given = dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), IDS)
    return graph.serialized(int64s(given), floats({"score": ("batch", 1)}))


def read_words(body: Path) -> npt.NDArray[np.float32]:
    """The word table of the published body, a BertForMaskedLM."""
    return read_safetensors(body.read_bytes())[f"bert.{WORDS}"]
