"""All that a retrieval needs of a query in one call: `rag_query`, on the encoders of `embed` and `language`."""

from dataclasses import replace

from zooserve_ensembles.families import language
from zooserve_ensembles.families.embed import ENCODER
from zooserve_ensembles.families.transformer import TEXT, TOKENIZED, TOKENS, tokenizer
from zooserve_ensembles.family import Family
from zooserve_ensembles.pipeline import Dtype, Model, Pipeline, Step, Tensor, edges
from zooserve_ensembles.variants import tokenizer_variants

__all__ = ["FAMILY", "HEAD"]

VECTOR = Tensor("sentence_embedding", Dtype.FP32, (384,))
EMBEDDING = Tensor("embedding", Dtype.FP32, (384,))
PROBABILITY = Tensor("injection_probability", Dtype.FP32, (1,))

TOKENIZER = tokenizer("rag_query_tokenizer", "rag_query")
# One step reads the query for both branches: where two steps read an ensemble's input and one bounds its queue, a full
# queue ends Triton 2.51 or is never told to the caller.
TOKENIZER = replace(
    TOKENIZER,
    summary=f"{TOKENIZER.summary} And the features that tell its language, for the second branch.",
    stage="query",
    stage_summary="A query to token ids and to the features of its language: tokenizer.json and automaton.npz beside.",
    outputs=(*TOKENIZER.outputs, *language.FEATURES),
)
TOKENIZER = replace(TOKENIZER, variants=tokenizer_variants(TOKENIZER, "interactive"))
HEAD = Model("injection_head", inputs=(VECTOR,), outputs=(PROBABILITY, EMBEDDING))

FAMILY = Family(
    pipelines=(
        Pipeline(
            name="rag_query",
            summary="One call for a query: its vector, in the space of embed, the probability that it is a prompt "
            "injection, and its language.",
            buckets=TOKENIZER.buckets,
            inputs=(TEXT,),
            outputs=(EMBEDDING, PROBABILITY, *language.LANGUAGE, TOKENS),
            steps=(
                Step(TOKENIZER, takes=edges("text"), gives=TOKENIZED | language.READ),
                Step(ENCODER, takes=edges("input_ids", "attention_mask"), gives=edges("sentence_embedding")),
                Step(
                    HEAD,
                    takes=edges("sentence_embedding"),
                    gives=edges("injection_probability", "embedding"),
                    reason="The vector passes through: an ensemble's output that is also a step's input breaks "
                    "requests for some outputs.",
                ),
                Step(language.ENCODER, takes=language.READ, gives=edges("language", "language_probability")),
            ),
        ),
    )
)
