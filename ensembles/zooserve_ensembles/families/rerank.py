"""A query and its documents to scores by late interaction: `rerank`, and `rerank_bulk` with queues of its own."""

from zooserve.catalogue import SloClass
from zooserve_ensembles.families.embed import VECTORS
from zooserve_ensembles.families.transformer import (
    MINILM,
    TEXT,
    TOKENIZED,
    TOKENS,
    encoder,
    late_interaction,
    tokenizer,
)
from zooserve_ensembles.family import Family
from zooserve_ensembles.member import Member
from zooserve_ensembles.pipeline import Dtype, Pipeline, Step, Tensor, edges

__all__ = ["ENCODER", "FAMILY", "SCORE", "SUMMARY", "TOKENIZER"]

SUMMARY = "A query (row 0) and its documents (the other rows) to a score for each row; row 0 has none."
SCORE = Tensor("score", Dtype.FP32, (1,))


def _encoder(name: str, of: str, slo_class: SloClass) -> Member:
    return encoder(
        name,
        f"Second stage of {of}: token ids to a unit vector and to raw token vectors (all-MiniLM-L6-v2, fp32).",
        outputs=VECTORS,
        slo_class=slo_class,
        arena=MINILM,
    )


def _late_interaction(name: str, summary: str, slo_class: SloClass, first: Member, second: Member) -> Pipeline:
    third = late_interaction(f"{name}_maxsim", name, slo_class=slo_class)
    return Pipeline(
        name=name,
        summary=summary,
        slo_class=slo_class,
        buckets=first.buckets,
        inputs=(TEXT,),
        outputs=(SCORE, TOKENS),
        steps=(
            Step(first, takes=edges("text"), gives=TOKENIZED),
            Step(
                second,
                takes=edges("input_ids", "attention_mask"),
                gives=edges("sentence_embedding", "token_embeddings"),
            ),
            Step(
                third,
                takes=edges("attention_mask", "token_embeddings", "sentence_embedding"),
                gives=edges("score"),
            ),
        ),
    )


TOKENIZER = tokenizer("rerank_tokenizer", "rerank and rerank_trees")
ENCODER = _encoder("rerank_encoder", "rerank and rerank_trees", "interactive")

FAMILY = Family(
    pipelines=(
        _late_interaction("rerank", SUMMARY, "interactive", TOKENIZER, ENCODER),
        _late_interaction(
            "rerank_bulk",
            f"{SUMMARY} Bulk traffic, in queues of its own.",
            "bulk",
            tokenizer("rerank_bulk_tokenizer", "rerank_bulk", slo_class="bulk"),
            _encoder("rerank_bulk_encoder", "rerank_bulk", "bulk"),
        ),
    )
)
