"""Text to probabilities: `classify`, whose members are written by hand."""

from zooserve_ensembles.families.transformer import MAX_WAITING, TEXT, TOKENS
from zooserve_ensembles.family import Family
from zooserve_ensembles.pipeline import Dtype, Model, Pipeline, Step, Tensor, edges

__all__ = ["FAMILY"]

WORDS = Tensor("input_ids", Dtype.INT64, (100,))
PROBABILITIES = Tensor("probabilities", Dtype.FP32, (6,))

TOKENIZER = Model("classify_tokenizer", inputs=(TEXT,), outputs=(WORDS, TOKENS), max_queue_size=MAX_WAITING)
ENCODER = Model("classify_encoder", inputs=(WORDS,), outputs=(PROBABILITIES,))

FAMILY = Family(
    pipelines=(
        Pipeline(
            name="classify",
            summary="Text to six toxicity probabilities, and the known words that were read.",
            inputs=(TEXT,),
            outputs=(PROBABILITIES, TOKENS),
            steps=(
                Step(TOKENIZER, takes=edges("text"), gives=edges("input_ids", "tokens")),
                Step(ENCODER, takes=edges("input_ids"), gives=edges("probabilities")),
            ),
        ),
    )
)
