"""Text to a sentence vector: `embed`, and `embed_bulk` with queues of its own."""

from zooserve.catalogue import SloClass
from zooserve_ensembles.families.transformer import MINILM, TEXT, TOKENIZED, TOKENS, encoder, tokenizer
from zooserve_ensembles.family import Family
from zooserve_ensembles.member import Member
from zooserve_ensembles.pipeline import Dtype, Pipeline, Step, Tensor, edges

__all__ = ["ENCODER", "FAMILY", "TOKENIZER", "VECTORS", "embedding"]

SUMMARY = "Text to a unit vector of 384 numbers, and the tokens that were read."
VECTORS = (Tensor("sentence_embedding", Dtype.FP32, (384,)), Tensor("token_embeddings", Dtype.FP32, (-1, 384)))
"""What the encoder gives: a unit vector, and raw token vectors (which only rerankers take)."""


def embedding(
    name: str,
    summary: str,
    tokenizer: Member,
    encoder: Member,
    *,
    width: int = 384,
    slo_class: SloClass = "interactive",
) -> Pipeline:
    """Text to the `sentence_embedding` of an encoder, under the name `embedding`."""
    return Pipeline(
        name=name,
        summary=summary,
        slo_class=slo_class,
        buckets=tokenizer.buckets,
        inputs=(TEXT,),
        outputs=(Tensor("embedding", Dtype.FP32, (width,)), TOKENS),
        steps=(
            Step(tokenizer, takes=edges("text"), gives=TOKENIZED),
            Step(encoder, takes=edges("input_ids", "attention_mask"), gives=edges(sentence_embedding="embedding")),
        ),
    )


# Queries repeat, documents hardly: these two keep their answers where the server has a response cache, bulk does not. A
# kept answer has the outputs that were first asked for and no others, so there is one way to ask each of them.
TOKENIZER = tokenizer("embed_tokenizer", "embed and injection", response_cache=True)
ENCODER = encoder(
    "embed_encoder",
    "Second stage of embed, injection and rag_query: token ids to a unit vector (all-MiniLM-L6-v2, fp32).",
    outputs=VECTORS[:1],
    response_cache=True,
    arena=MINILM,
)

FAMILY = Family(
    pipelines=(
        embedding("embed", SUMMARY, TOKENIZER, ENCODER),
        embedding(
            "embed_bulk",
            f"{SUMMARY} Bulk traffic, in queues of its own.",
            tokenizer("embed_bulk_tokenizer", "embed_bulk", slo_class="bulk"),
            encoder(
                "embed_bulk_encoder",
                "Second stage of embed_bulk: token ids to a unit vector and to raw token vectors "
                "(all-MiniLM-L6-v2, fp32).",
                outputs=VECTORS,
                slo_class="bulk",
                arena=MINILM,
            ),
            slo_class="bulk",
        ),
    )
)
