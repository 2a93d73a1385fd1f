"""The hardware variants of generated members: what `configs/<name>.pbtxt` says for `--model-config-name=<name>`.

All are for NVIDIA's container, whose ONNX Runtime backend is the native one. It refuses the ragged inputs of the
default, so an encoder has every variant, on the CPU too; a tokenizer has those in which it runs more than once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from zooserve.catalogue import SloClass
from zooserve_ensembles.member import Accelerator, Member, Warmup, zeros
from zooserve_ensembles.pipeline import Dtype

__all__ = ["ENGINE_CACHE", "VARIANTS", "Arena", "cpu_variants", "encoder_variants", "tokenizer_variants"]

VARIANTS = ("gpu", "h200", "shared", "tensorrt", "plan")
"""Every name that `--model-config-name` may have over the zoo."""

ENGINE_CACHE = "/var/cache/zooserve"
"""Where docker-compose.yml mounts the volume that keeps TensorRT's engines."""

CARD = 0
"""A container that is given one card sees it as number 0, whatever the host calls it."""

MIB = 1 << 20
WORKSPACE_BYTES = 1 << 30
CPU_THREADS = 4
"""Of a run on the CPU of NVIDIA's container; not measured there."""

TOKENIZERS: Mapping[str, Mapping[SloClass, int]] = {
    "gpu": {"interactive": 2, "bulk": 4},
    "h200": {"interactive": 4, "bulk": 12},
    "shared": {"interactive": 1, "bulk": 4},
    "tensorrt": {"interactive": 4, "bulk": 12},
    "plan": {"interactive": 4, "bulk": 12},
}
"""Instances: one is one core, and 1,400 to 5,000 texts/s are all that comes through it."""

TOKENIZER_REASON = (
    "A tokenizer is one core, and gives the encoder 1,400 to 5,000 texts/s: on an H200 four gave 3.5 to 3.9 times "
    "that, twelve with two of the encoder 5.6 to 6.2 times (benchmarks/results.md)."
)
ENCODERS_REASON = "Two at once: with twelve tokenizers 1.1 to 1.8 times one, on an H200 (benchmarks/results.md)."
THREADS_REASON = (
    "Said, not left to ONNX Runtime: it would start a thread for each core of the host, whatever the container may use."
)
STRATEGY_REASON = (
    "1: the arena grows by what is asked for, not to the next power of two. It stands here, like the limit, and not in "
    "an execution accelerator: what stands there the backend replaces by 0, and by no limit."
)
PROFILE_REASON = (
    "Each profile holds one length. ON_PROFILE_CHANGE: a context takes the memory of its own profile, not of the "
    "largest."
)
ENGINE_REASON = (
    "TensorRT takes what it can of the graph, CUDA the rest. Engines are built by the warm-ups of the first start, and "
    "kept: they fit this GPU and this container only."
)


@dataclass(frozen=True)
class Arena:
    """Device memory of an encoder's session with 64 rows of its longest bucket, and the limit that it was run under."""

    measured_mib: int
    limit_mib: int

    @property
    def limit_bytes(self) -> str:
        """The limit as the backend reads it."""
        return str(self.limit_mib * MIB)

    @property
    def reason(self) -> str:
        """Where the limit comes from."""
        return (
            f"{self.limit_mib:,} MiB for an instance's weights and runs: full batches of the longest bucket took "
            f"{self.measured_mib:,} on an H200. Beyond it a run fails and says so, and the next is served."
        )


def encoder_variants(
    member: Member, slo_class: SloClass, arena: Arena | None, *, too_large: str = "", engine: bool = True
) -> Mapping[str, Member]:
    """Those of an encoder that runs on a GPU; `engine` is False where its graph is not for TensorRT.

    `too_large` says why it stays on the CPU where the card is shared. Without a measured `arena` nothing limits it, and
    `zooserve stack check` says so of a shared card.
    """
    cuda = _on_cuda(member, arena)
    bulk_twice = replace(cuda, instances=2, reasons={**cuda.reasons, "instance_group": ENCODERS_REASON})
    # Its arena is kept there too: giving it back after each run cost 28 to 93% of the texts/s (benchmarks/results.md),
    # and whoever shares the card has taken his share at his start.
    shared = _on_cpu(member, too_large) if too_large else cuda
    made = {
        "gpu": cuda,
        "h200": bulk_twice if slo_class == "bulk" else cuda,
        "shared": shared,
        "tensorrt": _with_tensorrt(cuda) if engine else cuda,
        "plan": _as_plan(member) if engine and _gives_a_vector(member) else cuda,
    }
    return {name: _told(variant, name) for name, variant in made.items()}


def cpu_variants(member: Member, why: str, threads: int = CPU_THREADS) -> Mapping[str, Member]:
    """Those of an ONNX model that stays on the CPU beside others on a GPU: one text under every name."""
    made = _on_cpu(member, why, threads)
    return {name: _told(made, name) for name in VARIANTS}


def tokenizer_variants(member: Member, slo_class: SloClass) -> Mapping[str, Member]:
    """Those of a Python stage that keeps an encoder on a GPU busy."""
    return {
        name: replace(
            member,
            summary=f"{member.summary} Beside an encoder on a GPU (--model-config-name={name}).",
            instances=instances[slo_class],
            reasons={**member.reasons, "instance_group": TOKENIZER_REASON},
            variants={},
        )
        for name, instances in TOKENIZERS.items()
        if instances[slo_class] != member.instances
    }


def _native(member: Member) -> Member:
    """What the native backend takes: nothing ragged, and none of our own backend's parameters."""
    return replace(member, ragged=False, niceness=0, run_elements=None, parameters={}, reasons={}, variants={})


def _on_cpu(member: Member, why: str, threads: int = CPU_THREADS) -> Member:
    return replace(
        _native(member),
        summary=f"{member.name} on the CPU beside models on a GPU",
        threads=threads,
        parameters={"memory.enable_memory_arena_shrinkage": "cpu:0"},
        reasons={
            "instance_group": why,
            "intra_op_thread_count": THREADS_REASON,
            "memory.enable_memory_arena_shrinkage": "A batch runs whole there, and its memory would be kept for good.",
        },
    )


def _on_cuda(member: Member, arena: Arena | None) -> Member:
    limits = {"gpu_mem_limit": arena.limit_bytes, "arena_extend_strategy": "1"} if arena else {}
    reasons = {"gpu_mem_limit": arena.reason, "arena_extend_strategy": STRATEGY_REASON} if arena else {}
    longest = max(member.buckets)
    full = Warmup("full", tuple(zeros(tensor, longest) for tensor in member.inputs), batch_size=member.max_batch_size)
    return replace(
        _native(member),
        summary=f"{member.name} on a GPU",
        on_gpu=True,
        gpus=(CARD,),
        threads=1,
        parameters=limits,
        # The last one makes the arena as large as it gets: a card that is too full is told at the start.
        warmups=(*member.warmups, full),
        reasons={"intra_op_thread_count": THREADS_REASON, **reasons},
    )


def _with_tensorrt(cuda: Member) -> Member:
    rows, lengths = cuda.max_batch_size, cuda.buckets
    shapes = {
        "min": f"1x{lengths[0]}",
        "opt": f"{rows}x{lengths[len(lengths) // 2]}",
        "max": f"{rows}x{lengths[-1]}",
    }
    accelerator = Accelerator(
        "tensorrt",
        {
            "precision_mode": "FP32",
            "max_workspace_size_bytes": str(WORKSPACE_BYTES),
            "trt_engine_cache_enable": "1",
            "trt_engine_cache_path": ENGINE_CACHE,
            "trt_engine_cache_prefix": cuda.name,
            "trt_timing_cache_enable": "1",
            "trt_timing_cache_path": ENGINE_CACHE,
            **{
                f"trt_profile_{name}_shapes": ",".join(f"{tensor.name}:{shape}" for tensor in cuda.inputs)
                for name, shape in shapes.items()
            },
        },
    )
    return replace(cuda, accelerators=(accelerator,), reasons={**cuda.reasons, "optimization": ENGINE_REASON})


def _gives_a_vector(member: Member) -> bool:
    """Whether `zooserve engine build` takes it: its golden gate compares vectors, no scores and no word weights."""
    ids = {tensor.name for tensor in member.inputs} == {"input_ids", "attention_mask"}
    floats = all(tensor.dtype is Dtype.FP32 for tensor in member.outputs)
    return ids and floats and sum(len(tensor.dims) == 1 and tensor.dims[0] > 1 for tensor in member.outputs) == 1


def _as_plan(member: Member) -> Member:
    strategy = {"execution_context_allocation_strategy": "ON_PROFILE_CHANGE"}
    return replace(
        _native(member),
        summary=f"{member.name} as a TensorRT engine that `zooserve engine` has built for this GPU",
        backend="tensorrt",
        on_gpu=True,
        gpus=(CARD,),
        threads=None,
        profiles=tuple(range(len(member.buckets))),
        parameters=strategy,
        reasons={"execution_context_allocation_strategy": PROFILE_REASON},
    )


def _told(variant: Member, name: str) -> Member:
    backend = "TensorRT" if variant.backend == "tensorrt" else "ONNX Runtime"
    return replace(
        variant,
        summary=f"{variant.summary}, for Triton's native {backend} backend (--model-config-name={name}). Nothing is "
        "ragged: that backend cannot take requests of unequal shape in one batch, so only equal buckets share a run.",
    )
