"""A query and its documents to scores by gradient-boosted trees over retrieval features, on the encoder of `rerank`."""

from zooserve_ensembles.families.embed import VECTORS
from zooserve_ensembles.families.rerank import ENCODER, SCORE, SUMMARY, TOKENIZER
from zooserve_ensembles.families.transformer import IDS, MASK, TEXT, TOKENIZED, TOKENS
from zooserve_ensembles.family import Family
from zooserve_ensembles.member import Member, Warmup, zeros
from zooserve_ensembles.pipeline import Dtype, Pipeline, Step, Tensor, edges
from zooserve_ensembles.ranking_features import FEATURES

__all__ = ["FAMILY"]

READ = (IDS, MASK, *reversed(VECTORS))
ROW = Tensor("features", Dtype.FP32, (len(FEATURES),))

COMPUTED = Member(
    name="rerank_trees_features",
    summary="Third stage of rerank_trees: what the trees rank by, for each document (rows 1..) and the query (row 0). "
    "It sees each request by itself, so requests of unequal length may come together.",
    backend="python",
    stage="ranking_features",
    stage_summary="Token ids and vectors to ranking features; rarity.npy beside this file weighs the tokens.",
    inputs=READ,
    outputs=(ROW,),
    buckets=TOKENIZER.buckets,
    ragged=True,
    warmups=tuple(
        Warmup(f"bucket_{bucket}", tuple(zeros(tensor, bucket) for tensor in READ), batch_size=2)
        for bucket in TOKENIZER.buckets
    ),
)
RANKER = Member(
    name="rerank_trees_ranker",
    summary="Last stage of rerank_trees: features through 150 trees to the probability that a document is the answer. "
    "The same trees lie in zooserve_ensembles/heads/tree_ranker.txt, for the FIL backend.",
    backend="onnxruntime",
    inputs=(ROW,),
    outputs=(SCORE,),
    threads=1,
    warmups=(Warmup("rows", (zeros(ROW, 1),), batch_size=2),),
)

FAMILY = Family(
    pipelines=(
        Pipeline(
            name="rerank_trees",
            summary=SUMMARY,
            buckets=TOKENIZER.buckets,
            inputs=(TEXT,),
            outputs=(SCORE, TOKENS),
            steps=(
                Step(TOKENIZER, takes=edges("text"), gives=TOKENIZED),
                Step(
                    ENCODER,
                    takes=edges("input_ids", "attention_mask"),
                    gives=edges("sentence_embedding", "token_embeddings"),
                ),
                Step(COMPUTED, takes=edges(*(tensor.name for tensor in READ)), gives=edges("features")),
                Step(RANKER, takes=edges("features"), gives=edges("score")),
            ),
        ),
    )
)
