"""A query and its documents to scores by a cross-encoder, which reads each pair as one text.

`cross_encoder` makes the pipeline of any of them; `rerank_cross` is the small one that our script trains.
"""

from dataclasses import replace

from zooserve_ensembles.buckets import BUCKETS
from zooserve_ensembles.families.rerank import SCORE, SUMMARY
from zooserve_ensembles.families.transformer import IDS, MASK, TEXT, TOKENIZED, TOKENS, encoder, tokenizer
from zooserve_ensembles.family import Family
from zooserve_ensembles.member import Member, Warmup, text_of
from zooserve_ensembles.pipeline import Dtype, Pipeline, Step, Tensor, edges
from zooserve_ensembles.variants import Arena, tokenizer_variants

__all__ = ["FAMILY", "cross_encoder", "pair_tokenizer"]

TYPES = Tensor("token_type_ids", Dtype.INT64, (-1,))


def cross_encoder(
    name: str,
    about: str,
    *,
    buckets: tuple[int, ...] = BUCKETS,
    pad_id: int = 0,
    token_types: bool = True,
    arena: Arena | None = None,
) -> Pipeline:
    """The pipeline of a model that `zooserve export` made: `token_types` where export.json lists that input.

    `about` names the checkpoint. An XLM-RoBERTa (bge-reranker-v2-m3) has no token types, and 1 pads it.
    """
    first = pair_tokenizer(f"{name}_tokenizer", name, buckets=buckets, pad_id=pad_id, token_types=token_types)
    inputs = (IDS, MASK, TYPES) if token_types else (IDS, MASK)
    second = encoder(
        f"{name}_encoder",
        f"Second stage of {name}: the tokens of each pair to its score from 0 to 1 ({about}).",
        inputs=inputs,
        outputs=(SCORE,),
        buckets=buckets,
        arena=arena,
    )
    return Pipeline(
        name=name,
        summary=SUMMARY,
        buckets=buckets,
        inputs=(TEXT,),
        outputs=(SCORE, TOKENS),
        steps=(
            Step(first, takes=edges("text"), gives=TOKENIZED | (edges("token_type_ids") if token_types else {})),
            Step(second, takes=edges(*(tensor.name for tensor in inputs)), gives=edges("score")),
        ),
    )


def pair_tokenizer(
    name: str, of: str, *, buckets: tuple[int, ...] = BUCKETS, pad_id: int = 0, token_types: bool = True
) -> Member:
    """The first stage of cross-encoders: a query and documents to pairs; tokenizer.json lies in its version folder."""
    plain = tokenizer(name, of, buckets=buckets, pad_id=pad_id)
    member = Member(
        name=name,
        summary=f"First stage of {of}: row 0, the query, joined with each document in the rows after it; the longest "
        "pair's bucket is the length of all.",
        backend="python",
        stage="pairs",
        stage_summary="A query and documents to pairs of token ids; tokenizer.json lies beside this file.",
        inputs=plain.inputs,
        outputs=(*plain.outputs, TYPES) if token_types else plain.outputs,
        buckets=buckets,
        max_queue_size=plain.max_queue_size,
        parameters={**plain.parameters, **({} if token_types else {"token_types": "no"})},
        warmups=(Warmup("pair", (text_of(buckets[0] // 2),), batch_size=2),),
        reasons=plain.reasons,
    )
    return replace(member, variants=tokenizer_variants(member, "interactive"))


FAMILY = Family(
    pipelines=(
        cross_encoder(
            "rerank_cross",
            "BERT of two layers, trained by ensembles/training",
            arena=Arena(measured_mib=326, limit_mib=384),
        ),
    )
)
