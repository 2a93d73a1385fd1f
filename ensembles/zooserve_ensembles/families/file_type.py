"""Any file to its content type: `file_type`, whose members are written by hand."""

from zooserve_ensembles.families.transformer import MAX_WAITING
from zooserve_ensembles.family import Family
from zooserve_ensembles.pipeline import Dtype, Model, Pipeline, Step, Tensor, edges

__all__ = ["FAMILY"]

FILE = Tensor("file", Dtype.STRING, (1,))
ENDS = Tensor("bytes", Dtype.INT32, (2048,))
PROBABILITIES = Tensor("probabilities", Dtype.FP32, (214,))

READER = Model("file_type_reader", inputs=(FILE,), outputs=(ENDS,), max_queue_size=MAX_WAITING)
ENCODER = Model("file_type_encoder", inputs=(ENDS,), outputs=(Tensor("target_label", Dtype.FP32, (214,)),))

FAMILY = Family(
    pipelines=(
        Pipeline(
            name="file_type",
            summary="The bytes of a file to the probability of each of 214 content types.",
            inputs=(FILE,),
            outputs=(PROBABILITIES,),
            steps=(
                Step(READER, takes=edges("file"), gives=edges("bytes")),
                Step(ENCODER, takes=edges("bytes"), gives=edges(target_label="probabilities")),
            ),
        ),
    )
)
