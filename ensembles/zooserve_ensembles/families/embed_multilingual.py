"""Text of about a hundred languages to a sentence vector: `embed_multilingual`, a space of its own.

The model expects a prompt before each text ("query: " or "passage: "). The pipeline takes texts as they are: whoever
calls it writes the prompt, and the router does so by the catalogue's `prompts`.
"""

from zooserve_ensembles.families.embed import embedding
from zooserve_ensembles.families.transformer import encoder, tokenizer
from zooserve_ensembles.family import Family
from zooserve_ensembles.pipeline import Dtype, Tensor
from zooserve_ensembles.variants import Arena

__all__ = ["BUCKETS", "FAMILY"]

BUCKETS = (16, 32, 64, 128, 256, 512)
PAD_ID = 1
"""XLM-R's padding token."""

FAMILY = Family(
    pipelines=(
        embedding(
            "embed_multilingual",
            "Text with its prompt, of about a hundred languages, to a unit vector of 384 numbers, and the tokens that "
            "were read.",
            tokenizer("embed_multilingual_tokenizer", "embed_multilingual", buckets=BUCKETS, pad_id=PAD_ID),
            encoder(
                "embed_multilingual_encoder",
                "Second stage of embed_multilingual: token ids to a unit vector (multilingual-e5-small, 4-bit weights, "
                "computed in fp32).",
                outputs=(Tensor("sentence_embedding", Dtype.FP32, (384,)),),
                buckets=BUCKETS,
                arena=Arena(measured_mib=2240, limit_mib=3072),
                engine=False,  # TensorRT knows none of its 4-bit products; CUDA does
            ),
        ),
    )
)
