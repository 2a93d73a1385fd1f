"""All that a retrieval needs of a query in one call: `rag_query`, on the members of `embed`."""

from zooserve_ensembles.families.embed import ENCODER, TOKENIZER
from zooserve_ensembles.families.transformer import TEXT, TOKENIZED, TOKENS
from zooserve_ensembles.family import Family
from zooserve_ensembles.pipeline import Dtype, Model, Pipeline, Step, Tensor, edges

__all__ = ["FAMILY"]

VECTOR = Tensor("sentence_embedding", Dtype.FP32, (384,))
EMBEDDING = Tensor("embedding", Dtype.FP32, (384,))
PROBABILITY = Tensor("injection_probability", Dtype.FP32, (1,))

HEAD = Model("injection_head", inputs=(VECTOR,), outputs=(PROBABILITY, EMBEDDING))

FAMILY = Family(
    pipelines=(
        Pipeline(
            name="rag_query",
            summary="One call for a query: its vector, in the space of embed, and the probability that it is a prompt "
            "injection.",
            buckets=TOKENIZER.buckets,
            inputs=(TEXT,),
            outputs=(EMBEDDING, PROBABILITY, TOKENS),
            steps=(
                Step(TOKENIZER, takes=edges("text"), gives=TOKENIZED),
                Step(ENCODER, takes=edges("input_ids", "attention_mask"), gives=edges("sentence_embedding")),
                Step(
                    HEAD,
                    takes=edges("sentence_embedding"),
                    gives=edges("injection_probability", "embedding"),
                    reason="The vector passes through: an ensemble's output that is also a step's input breaks "
                    "requests for some outputs.",
                ),
            ),
        ),
    )
)
