"""The members that transformer pipelines share: tokenizer, encoder, late-interaction stage."""

from collections.abc import Mapping
from dataclasses import replace

from zooserve.catalogue import SloClass
from zooserve_ensembles.buckets import BUCKETS
from zooserve_ensembles.member import NICENESS, Member, Warmup, text_of, zeros
from zooserve_ensembles.pipeline import Dtype, Tensor, edges
from zooserve_ensembles.variants import Arena, encoder_variants, tokenizer_variants

__all__ = [
    "IDS",
    "MASK",
    "MAX_WAITING",
    "MINILM",
    "TEXT",
    "TOKENIZED",
    "TOKENS",
    "encoder",
    "late_interaction",
    "tokenizer",
]

TEXT = Tensor("text", Dtype.STRING, (1,))
IDS = Tensor("input_ids", Dtype.INT64, (-1,))
MASK = Tensor("attention_mask", Dtype.INT64, (-1,))
TOKENS = Tensor("tokens", Dtype.INT32, (1,))
TOKENIZED = edges("input_ids", "attention_mask", "tokens")
"""All that a tokenizer gives, under its own names."""

SPECIAL_TOKENS = 2
MINILM = Arena(measured_mib=852, limit_mib=1024)
"""all-MiniLM-L6-v2 in fp32, 64 x 256 tokens, whichever of its outputs are asked for."""
RUN_ELEMENTS: Mapping[SloClass, tuple[int, str]] = {
    "interactive": (
        2048,
        "8 x 256 tokens a run, and a run for each core: a whole batch of 64 x 256 left 1,040 MB in this process for "
        "good, and is no faster.",
    ),
    "bulk": (
        512,
        "Bulk yields the cores to interactive traffic: a lower priority, and runs of 512 tokens (8 x 64), between "
        "which others get a turn.",
    ),
}
THREADS: Mapping[SloClass, int] = {"interactive": 0, "bulk": 1}
"""Of a run by itself: a single interactive text is quicker by all cores; bulk comes in many rows."""
MAX_WAITING = 1024
"""Requests in the queue of a pipeline's first step."""


def tokenizer(
    name: str,
    of: str,
    *,
    slo_class: SloClass = "interactive",
    buckets: tuple[int, ...] = BUCKETS,
    pad_id: int = 0,
    response_cache: bool = False,
    parameters: Mapping[str, str] | None = None,
) -> Member:
    """The first stage of the pipelines `of`: text to token ids; tokenizer.json lies in its version folder."""
    lengths = ",".join(map(str, buckets))
    own = {} if buckets == BUCKETS else {"buckets": lengths}
    padding = {"pad_id": str(pad_id)} if pad_id else {}
    member = Member(
        name=name,
        summary=f"First stage of {of}: text to token ids, padded to {_either(buckets)} by the request's longest text.",
        backend="python",
        stage="tokenizer",
        stage_summary="Text to token ids; the tokenizer is in tokenizer.json beside this file.",
        inputs=(TEXT,),
        outputs=(IDS, MASK, TOKENS),
        buckets=buckets,
        max_queue_size=MAX_WAITING,
        niceness=NICENESS[slo_class],
        parameters=own | padding | dict(parameters or {}),
        response_cache=response_cache,
        warmups=tuple(Warmup(f"bucket_{bucket}", (text_of(bucket - SPECIAL_TOKENS),)) for bucket in buckets),
        reasons={
            "dynamic_batching": "No queue delay: batches form while the encoder is busy. The queue is bounded here, "
            "at an ensemble's first step, and nowhere behind it: behind a fan-out a full queue wedges Triton 2.51 "
            "for good."
        },
    )
    return replace(member, variants=tokenizer_variants(member, slo_class))


def encoder(
    name: str,
    summary: str,
    *,
    outputs: tuple[Tensor, ...],
    inputs: tuple[Tensor, ...] = (IDS, MASK),
    slo_class: SloClass = "interactive",
    buckets: tuple[int, ...] = BUCKETS,
    run_elements: int | None = None,
    response_cache: bool = False,
    parameters: Mapping[str, str] | None = None,
    reasons: Mapping[str, str] | None = None,
    arena: Arena | None = None,
    too_large: str = "",
    engine: bool = True,
) -> Member:
    """A later stage: token ids through an ONNX graph, on a GPU by its variants (`variants.encoder_variants`)."""
    budget, reason = RUN_ELEMENTS[slo_class]
    side_by_side = {"side_by_side": "0"}
    mask = {"mask_input": MASK.name} if MASK in inputs else {}
    member = Member(
        name=name,
        summary=summary,
        backend="onnxruntime",
        inputs=inputs,
        outputs=outputs,
        buckets=buckets,
        ragged=True,
        threads=THREADS[slo_class],
        niceness=NICENESS[slo_class],
        run_elements=run_elements or budget,
        parameters={**side_by_side, **mask, **(parameters or {})},
        response_cache=response_cache,
        warmups=tuple(
            Warmup(f"bucket_{bucket}", tuple(zeros(tensor, bucket) for tensor in inputs)) for bucket in buckets
        ),
        reasons={
            "input": "Ragged: the batcher otherwise joins only neighbours in the queue of equal length. The backend "
            "groups them by bucket.",
            "niceness" if NICENESS[slo_class] else "run_elements": reason,
            "side_by_side": "A thread a slice: threads that share a run wait for each other at every operator.",
            "mask_input": "Columns that are padding in every row of a run are left out of it.",
            **(reasons or {}),
        },
    )
    variants = encoder_variants(member, slo_class, arena, too_large=too_large, engine=engine)
    return replace(member, variants=variants)


def late_interaction(
    name: str,
    of: str,
    *,
    slo_class: SloClass = "interactive",
    buckets: tuple[int, ...] = BUCKETS,
    width: int = 384,
) -> Member:
    """The last stage of a reranker: token vectors of a query and its documents to scores."""
    inputs = (
        MASK,
        Tensor("token_embeddings", Dtype.FP32, (-1, width)),
        Tensor("sentence_embedding", Dtype.FP32, (width,)),
    )
    return Member(
        name=name,
        summary=f"Last stage of {of}: token vectors of a query (row 0) and its documents to scores. It sees each "
        "request by itself, so requests of unequal length may come together.",
        backend="python",
        stage="maxsim",
        stage_summary="Token vectors to late-interaction scores.",
        inputs=inputs,
        outputs=(Tensor("score", Dtype.FP32, (1,)),),
        buckets=buckets,
        ragged=True,
        niceness=NICENESS[slo_class],
        warmups=tuple(
            Warmup(f"bucket_{bucket}", tuple(zeros(tensor, bucket) for tensor in inputs), batch_size=2)
            for bucket in buckets
        ),
    )


def _either(numbers: tuple[int, ...]) -> str:
    *most, last = map(str, numbers)
    return f"{', '.join(most)} or {last}" if most else last
