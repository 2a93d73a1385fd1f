"""Text to its language: `language`, whose members are written by hand; `rag_query` shares the second."""

from zooserve_ensembles.families.transformer import MAX_WAITING, TEXT, TOKENS
from zooserve_ensembles.family import Family
from zooserve_ensembles.pipeline import Dtype, Model, Pipeline, Step, Tensor, edges

__all__ = ["ENCODER", "FAMILY", "FEATURES", "LANGUAGE", "READ"]

FEATURES = (
    Tensor("features", Dtype.INT64, (-1,)),
    Tensor("counts", Dtype.FP32, (-1,)),
    Tensor("sharpness", Dtype.FP32, (1,)),
)
READ = edges(*(tensor.name for tensor in FEATURES))
"""What the network reads, under its own names."""

PROBABILITIES = Tensor("probabilities", Dtype.FP32, (140,))
LANGUAGE = (Tensor("language", Dtype.STRING, (1,)), Tensor("language_probability", Dtype.FP32, (1,)))
"""The likeliest language by its code, and how likely it is."""

TOKENIZER = Model(
    "language_tokenizer",
    inputs=(TEXT,),
    outputs=(*FEATURES, TOKENS),
    max_queue_size=MAX_WAITING,
)
# Its lengths are of features, not of tokens: rag_query's buckets are none of its own.
ENCODER = Model("language_encoder", inputs=FEATURES, outputs=(PROBABILITIES, *LANGUAGE))

FAMILY = Family(
    pipelines=(
        Pipeline(
            name="language",
            summary="Text to the probability of each of 140 languages, and the bytes that were read.",
            inputs=(TEXT,),
            outputs=(PROBABILITIES, TOKENS),
            steps=(
                Step(TOKENIZER, takes=edges("text"), gives=READ | edges("tokens")),
                Step(ENCODER, takes=READ, gives=edges("probabilities")),
            ),
        ),
    )
)
