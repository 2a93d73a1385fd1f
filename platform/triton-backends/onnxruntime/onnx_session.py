"""From a model's configuration to an open ONNX Runtime session: threads, spinning, optimisations, devices.

Parameter names are those of the native ONNX Runtime backend where it has one, so that a configuration means the same
here and there. Ours alone: `niceness`, `run_elements`, `side_by_side`, `mask_input`, and every `session.*` key, handed
to ONNX Runtime as it is.
"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnxruntime as ort

__all__ = [
    "ModelUnusable",
    "SessionSettings",
    "open_session",
    "provider_names",
    "read_settings",
    "run_options",
    "set_niceness",
    "usable_cores",
]

Provider = tuple[str, dict[str, str]]

CUDA = "CUDAExecutionProvider"
ACCELERATORS = {
    "cuda": CUDA,
    "tensorrt": "TensorrtExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
}
# What the native backend calls differently from ONNX Runtime itself.
TENSORRT_OPTIONS = {
    "max_workspace_size_bytes": "trt_max_workspace_size",
    "int8_calibration_table_name": "trt_int8_calibration_table_name",
    "int8_use_native_calibration_table": "trt_int8_use_native_calibration_table",
}
# Settings of CUDA that the native backend reads among a model's parameters, and its numbers for their values. There
# they replace what an accelerator "cuda" says, by its defaults too; here only what is said counts.
CUDA_PARAMETERS: Mapping[str, Mapping[str, str]] = {
    "gpu_mem_limit": {},
    "arena_extend_strategy": {"0": "kNextPowerOfTwo", "1": "kSameAsRequested"},
    "cudnn_conv_algo_search": {"0": "EXHAUSTIVE", "1": "HEURISTIC", "2": "DEFAULT"},
    "do_copy_in_default_stream": {},
}
OPTIMISATION = {
    -1: ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    0: ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
    1: ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    2: ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
}
IDLE_NICENESS = 20
"""One beyond the lowest that `nice` knows."""
SHRINK_ARENA = "memory.enable_memory_arena_shrinkage"


class ModelUnusable(Exception):
    """The file or its configuration cannot be served; the message says which and why."""


@dataclass(frozen=True)
class SessionSettings:
    """What one model's configuration asks of its session."""

    intra_op_threads: int = 0
    inter_op_threads: int = 0
    parallel: bool = False
    optimisation: int = 0
    memory_arena: bool = True
    memory_pattern: bool = True
    shrink_arena: str = ""
    niceness: int = 0
    run_elements: int = 0
    """Elements of the first input (rows x tokens) in one run; a larger batch runs in slices. 0: no bound.

    Bounds how long a run keeps the cores, and what the memory arena grows to and keeps.
    """
    side_by_side: int = 1
    """Slices of a batch that run at once, each on a thread of its own, besides `intra_op_threads` for a single row."""
    mask: str = ""
    """The input that is 0 where a row is padding: a run leaves out the columns at the end that are padding in all."""
    operators: tuple[str, ...] = ()
    """Shared libraries of operators that ONNX Runtime itself has not (`model_operations`, as in the native backend)."""
    entries: Mapping[str, str] = field(default_factory=dict)
    providers: tuple[Provider, ...] = (("CPUExecutionProvider", {}),)


def read_settings(config: Mapping[str, Any], device_id: int | None) -> SessionSettings:
    """The settings in a model's configuration; `device_id` is the GPU of this instance, None on CPU."""
    given = {key: value["string_value"] for key, value in config.get("parameters", {}).items()}
    optimization = config.get("optimization", {})
    return SessionSettings(
        intra_op_threads=_integer(given, "intra_op_thread_count", 0),
        inter_op_threads=_integer(given, "inter_op_thread_count", 0),
        parallel=_integer(given, "execution_mode", 0) == 1,
        optimisation=int(optimization.get("graph", {}).get("level", 0)),
        memory_arena=_integer(given, "enable_mem_arena", 1) == 1,
        memory_pattern=_integer(given, "enable_mem_pattern", 1) == 1,
        shrink_arena=given.get(SHRINK_ARENA, ""),
        niceness=_integer(given, "niceness", 0),
        run_elements=_integer(given, "run_elements", 0),
        side_by_side=_side_by_side(given, device_id),
        mask=given.get("mask_input", ""),
        operators=tuple(config.get("model_operations", {}).get("op_library_filename", ())),
        # Threads that spin for work burn the cores of the stubs beside them: measured on two cores, spinning won
        # nothing (1x32: 101 against 99 texts/s; 8x32: 167 against 163).
        entries={
            "session.intra_op.allow_spinning": "0" if device_id is None else "1",
            **{key: value for key, value in given.items() if key.startswith("session.")},
        },
        providers=_providers(optimization.get("execution_accelerators", {}), _cuda_options(given), device_id),
    )


def open_session(file: Path, settings: SessionSettings) -> ort.InferenceSession:
    """Open the file. Raises ModelUnusable if it is missing, is not ONNX, or a provider is not in this build."""
    if not file.is_file():
        raise ModelUnusable(f"there is no {file.name} in {file.parent}: run `zooserve fetch`")
    missing = [name for name, _ in settings.providers if name not in ort.get_available_providers()]
    if missing:
        raise ModelUnusable(
            f"this ONNX Runtime has no {', '.join(missing)} (it has {', '.join(ort.get_available_providers())}): "
            "install the build that has it, or take the accelerator or KIND_GPU out of the configuration"
        )
    try:
        options = _options(settings)
        for library in settings.operators:
            options.register_custom_ops_library(library)
        return ort.InferenceSession(str(file), options, providers=list(settings.providers))
    except Exception as exc:  # ONNX Runtime raises bare C++ types here, one per kind of failure
        raise ModelUnusable(f"ONNX Runtime cannot load {file.name}: {exc}") from exc


def set_niceness(increment: int) -> None:
    """Lower the scheduling priority of every thread of this process by `increment`, 0 to 19; 20 is below them all.

    At 20 the kernel runs it where nobody else wants the core, and anybody who wakes up displaces it at once. os.nice
    alone reaches only the calling thread on Linux; threads started later inherit theirs.
    """
    if increment <= 0:
        return
    for task in Path("/proc/self/task").iterdir():
        if increment >= IDLE_NICENESS:
            os.sched_setscheduler(int(task.name), os.SCHED_IDLE, os.sched_param(0))
        else:
            os.setpriority(os.PRIO_PROCESS, int(task.name), increment)


def usable_cores(cpu_max: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Cores this process may use: its affinity, cut to the container's quota."""
    allowed = len(os.sched_getaffinity(0))
    try:
        quota, period = cpu_max.read_text().split()
    except (OSError, ValueError):
        return allowed
    return allowed if quota == "max" else max(1, min(allowed, math.ceil(int(quota) / int(period))))


def _options(settings: SessionSettings) -> ort.SessionOptions:
    options = ort.SessionOptions()
    # Left to itself ONNX Runtime pins each thread to a core: every stub on the machine to the same ones.
    options.intra_op_num_threads = settings.intra_op_threads or usable_cores()
    options.inter_op_num_threads = settings.inter_op_threads
    options.execution_mode = ort.ExecutionMode.ORT_PARALLEL if settings.parallel else ort.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = OPTIMISATION[settings.optimisation]
    options.enable_cpu_mem_arena = settings.memory_arena
    options.enable_mem_pattern = settings.memory_pattern
    for key, value in settings.entries.items():
        options.add_session_config_entry(key, value)
    return options


def _providers(accelerators: Mapping[str, Any], cuda: Mapping[str, str], device_id: int | None) -> tuple[Provider, ...]:
    if device_id is None:
        chosen = accelerators.get("cpu_execution_accelerator", [])
        return (*(_accelerator(entry, None) for entry in chosen), ("CPUExecutionProvider", {}))
    chosen = [_accelerator(entry, device_id) for entry in accelerators.get("gpu_execution_accelerator", [])]
    if CUDA not in [name for name, _ in chosen]:
        # What TensorRT cannot take falls to CUDA, as in the native backend.
        chosen.append((CUDA, {"device_id": str(device_id)}))
    chosen = [(name, options | cuda if name == CUDA else options) for name, options in chosen]
    return (*chosen, ("CPUExecutionProvider", {}))


def _cuda_options(given: Mapping[str, str]) -> dict[str, str]:
    options = {}
    for key, words in CUDA_PARAMETERS.items():
        if key not in given:
            continue
        if words and given[key] not in words:
            raise ModelUnusable(f'parameter {key} is "{given[key]}", and must be one of {", ".join(words)}')
        options[key] = words.get(given[key], given[key])
    return options


def _accelerator(entry: Mapping[str, Any], device_id: int | None) -> Provider:
    name = entry["name"]
    if name not in ACCELERATORS:
        raise ModelUnusable(f'no execution accelerator is called "{name}": choose among {", ".join(ACCELERATORS)}')
    parameters = dict(entry.get("parameters", {}))
    if name == "tensorrt":
        parameters = _tensorrt_options(parameters)
    if device_id is not None:
        parameters["device_id"] = str(device_id)
    return ACCELERATORS[name], parameters


def _tensorrt_options(parameters: Mapping[str, str]) -> dict[str, str]:
    options = {TENSORRT_OPTIONS.get(key, key): value for key, value in parameters.items() if key != "precision_mode"}
    precision = parameters.get("precision_mode", "FP32")
    if precision not in ("FP32", "FP16", "BF16", "INT8"):
        raise ModelUnusable(f'tensorrt: precision_mode "{precision}" is none of FP32, FP16, BF16, INT8')
    if precision != "FP32":
        options[f"trt_{precision.lower()}_enable"] = "1"
    return options


def _side_by_side(given: Mapping[str, str], device_id: int | None) -> int:
    """As many as the configuration says, 0 for one per core; one on a GPU, where a run has all of it anyway."""
    if device_id is not None:
        return 1
    return _integer(given, "side_by_side", 1) or usable_cores()


def _integer(given: Mapping[str, str], key: str, default: int) -> int:
    try:
        return int(given.get(key, default))
    except ValueError as exc:
        raise ModelUnusable(f'parameter {key} is "{given[key]}", not a whole number') from exc


def run_options(settings: SessionSettings) -> ort.RunOptions | None:
    """Options of each run, None if the configuration names none."""
    if not settings.shrink_arena:
        return None
    options = ort.RunOptions()
    options.add_run_config_entry(SHRINK_ARENA, settings.shrink_arena)
    return options


def provider_names(providers: Sequence[Provider]) -> str:
    """The providers in order of preference, for a log line."""
    return ", ".join(name for name, _ in providers)
