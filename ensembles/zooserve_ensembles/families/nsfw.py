"""An image to whether it is pornographic: `nsfw`, whose members are written by hand."""

from zooserve_ensembles.families.transformer import MAX_WAITING
from zooserve_ensembles.family import Family
from zooserve_ensembles.pipeline import Dtype, Model, Pipeline, Step, Tensor, edges

__all__ = ["FAMILY"]

ROWS = 16
"""Images of one batch: decoded they have 0.6 MB each."""

IMAGE = Tensor("image", Dtype.STRING, (1,))
PIXELS = Tensor("pixels", Dtype.FP32, (224, 224, 3))
PROBABILITIES = Tensor("probabilities", Dtype.FP32, (2,))

READER = Model("nsfw_reader", inputs=(IMAGE,), outputs=(PIXELS,), max_batch_size=ROWS, max_queue_size=MAX_WAITING)
ENCODER = Model(
    "nsfw_encoder",
    inputs=(Tensor("input_0", Dtype.FP32, PIXELS.dims),),
    outputs=(Tensor("4195", Dtype.FP32, PROBABILITIES.dims),),
    max_batch_size=ROWS,
)

FAMILY = Family(
    pipelines=(
        Pipeline(
            name="nsfw",
            summary="An encoded image to the probabilities of sfw and nsfw.",
            max_batch_size=ROWS,
            inputs=(IMAGE,),
            outputs=(PROBABILITIES,),
            steps=(
                Step(READER, takes=edges("image"), gives=edges("pixels")),
                Step(ENCODER, takes=edges(input_0="pixels"), gives={"4195": "probabilities"}),
            ),
        ),
    )
)
