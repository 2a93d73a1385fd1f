"""Text to a sentence vector in 8-bit arithmetic: `embed_int8`, a space of its own beside `embed`."""

from dataclasses import replace

from zooserve_ensembles.families.embed import embedding
from zooserve_ensembles.families.transformer import encoder, tokenizer
from zooserve_ensembles.family import Family
from zooserve_ensembles.pipeline import Dtype, Tensor
from zooserve_ensembles.variants import cpu_variants

__all__ = ["FAMILY"]

ENCODER = encoder(
    "embed_int8_encoder",
    "Second stage of embed_int8: token ids to a unit vector (all-MiniLM-L6-v2, matrices in int8, each token's row "
    "scaled by itself).",
    outputs=(Tensor("sentence_embedding", Dtype.FP32, (384,)),),
)
ENCODER = replace(ENCODER, variants=cpu_variants(ENCODER, "Its integer products exist for CPUs only."))

FAMILY = Family(
    pipelines=(
        embedding(
            "embed_int8",
            "Text to a unit vector of 384 numbers in 8-bit arithmetic, not comparable with those of embed, and the "
            "tokens that were read.",
            tokenizer("embed_int8_tokenizer", "embed_int8"),
            ENCODER,
        ),
    )
)
