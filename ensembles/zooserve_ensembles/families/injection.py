"""Text to the probability that it is a prompt injection, on the members of `embed` and the head of `rag_query`."""

from zooserve_ensembles.families.embed import ENCODER, TOKENIZER
from zooserve_ensembles.families.rag_query import HEAD
from zooserve_ensembles.families.transformer import TEXT, TOKENIZED, TOKENS
from zooserve_ensembles.family import Family
from zooserve_ensembles.pipeline import Dtype, Pipeline, Step, Tensor, edges

__all__ = ["FAMILY"]

FAMILY = Family(
    pipelines=(
        Pipeline(
            name="injection",
            summary="Text to the probability that it is a prompt injection, and the tokens that were read.",
            buckets=TOKENIZER.buckets,
            inputs=(TEXT,),
            outputs=(Tensor("probabilities", Dtype.FP32, (1,)), TOKENS),
            steps=(
                Step(TOKENIZER, takes=edges("text"), gives=TOKENIZED),
                Step(ENCODER, takes=edges("input_ids", "attention_mask"), gives=edges("sentence_embedding")),
                Step(HEAD, takes=edges("sentence_embedding"), gives=edges(injection_probability="probabilities")),
            ),
        ),
    )
)
