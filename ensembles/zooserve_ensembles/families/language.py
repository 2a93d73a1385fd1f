"""Text to its language: `language`, whose first member is written by hand; `rag_query` shares the second."""

from dataclasses import replace

from zooserve_ensembles.families.transformer import MAX_WAITING, TEXT, TOKENS
from zooserve_ensembles.family import Family
from zooserve_ensembles.member import Member, Warmup, zeros
from zooserve_ensembles.pipeline import Dtype, Model, Pipeline, Step, Tensor, edges
from zooserve_ensembles.variants import cpu_variants

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
ENCODER = Member(
    name="language_encoder",
    summary="Second stage of language and of rag_query: features of a text to the probability of each of 140 languages "
    "(naive Bayes), and the likeliest by its code.",
    backend="onnxruntime",
    inputs=FEATURES,
    outputs=(PROBABILITIES, *LANGUAGE),
    ragged=True,
    threads=1,
    run_elements=16_384,
    parameters={"mask_input": "counts"},
    warmups=tuple(
        Warmup(f"length_{length}", tuple(zeros(tensor, length) for tensor in FEATURES)) for length in (64, 256, 1024)
    ),
    reasons={
        "input": "Ragged: the backend groups rows by length, so that short queries need not wait for a neighbour of "
        "their own length.",
        "intra_op_thread_count": "A row takes microseconds: a second thread would cost more than it gives.",
        "run_elements": "16 x 1024 features a run: each is a row of 140 floats while it is summed.",
        "mask_input": "A count of 0 is padding: columns of nothing else are left out.",
    },
)
# Here for its variants, of which every encoder has all; it is alone in its shape.
ENCODER = replace(ENCODER, variants=cpu_variants(ENCODER, "A row takes microseconds there.", threads=1))

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
