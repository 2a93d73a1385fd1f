"""Text to the heaviest words of a vocabulary: `embed_sparse`."""

from zooserve_ensembles.families.transformer import TEXT, TOKENIZED, TOKENS, encoder, tokenizer
from zooserve_ensembles.family import Family
from zooserve_ensembles.pipeline import Dtype, Pipeline, Step, Tensor, edges
from zooserve_ensembles.variants import Arena

__all__ = ["FAMILY"]

KEPT = 256
"""Words kept of each text (`graphs.sparse_encoder`)."""

WORDS = (Tensor("indices", Dtype.INT32, (KEPT,)), Tensor("values", Dtype.FP32, (KEPT,)))

TOKENIZER = tokenizer("embed_sparse_tokenizer", "embed_sparse")
ENCODER = encoder(
    "embed_sparse_encoder",
    f"Second stage of embed_sparse: token ids to the {KEPT} heaviest words of the vocabulary (SPLADE-tiny, fp32), "
    "heaviest first; where fewer have a weight, -1 and 0.",
    outputs=WORDS,
    run_elements=2 * 256,
    reasons={
        "run_elements": "2 x 256 tokens a run, and a run for each core: every token has 30,522 logits for a moment, "
        "62 MB a run."
    },
    # Triton's own backend runs a batch whole, and every token has its 30,522 logits at once.
    arena=Arena(measured_mib=7610, limit_mib=8192),
    too_large="On the CPU: a full batch of its logits took 7,610 MiB of a card.",
)

FAMILY = Family(
    pipelines=(
        Pipeline(
            name="embed_sparse",
            summary=f"Text to the {KEPT} heaviest words of a vocabulary of 30,522, heaviest first, and the tokens that "
            "were read. Where fewer have a weight, the rest are -1 and 0.",
            buckets=TOKENIZER.buckets,
            inputs=(TEXT,),
            outputs=(*WORDS, TOKENS),
            steps=(
                Step(TOKENIZER, takes=edges("text"), gives=TOKENIZED),
                Step(ENCODER, takes=edges("input_ids", "attention_mask"), gives=edges("indices", "values")),
            ),
        ),
    )
)
