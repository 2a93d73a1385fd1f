import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnxruntime as ort
import pytest
from onnx_session import ModelUnusable, SessionSettings, open_session, read_settings, run_options, usable_cores

BACKEND = Path(__file__).parents[3] / "platform" / "triton-backends" / "onnxruntime"
CPU = ("CPUExecutionProvider", {})


def parameters(**values: str) -> dict[str, Any]:
    return {"parameters": {key: {"string_value": value} for key, value in values.items()}}


def accelerated(side: str, *entries: dict[str, Any]) -> dict[str, Any]:
    return {"optimization": {"execution_accelerators": {f"{side}_execution_accelerator": list(entries)}}}


def test_nothing_said_means_the_cpu_without_spinning() -> None:
    settings = read_settings({}, None)
    assert settings.providers == (CPU,)
    assert settings.entries == {"session.intra_op.allow_spinning": "0"}


def test_a_gpu_instance_runs_on_cuda_with_its_device_and_may_spin() -> None:
    settings = read_settings({}, 3)
    assert settings.providers == (("CUDAExecutionProvider", {"device_id": "3"}), CPU)
    assert settings.entries == {"session.intra_op.allow_spinning": "1"}


def test_the_native_backend_s_parameters_are_understood() -> None:
    config = parameters(
        intra_op_thread_count="3",
        inter_op_thread_count="2",
        execution_mode="1",
        enable_mem_arena="0",
        enable_mem_pattern="0",
        niceness="5",
        run_elements="512",
    )
    settings = read_settings(config | {"optimization": {"graph": {"level": -1}}}, None)
    assert (settings.intra_op_threads, settings.inter_op_threads, settings.parallel) == (3, 2, True)
    assert (settings.memory_arena, settings.memory_pattern, settings.optimisation) == (False, False, -1)
    assert (settings.niceness, settings.run_elements) == (5, 512)


def test_session_keys_go_through_as_they_are_and_win() -> None:
    config = parameters(**{"session.intra_op.allow_spinning": "1", "session.set_denormal_as_zero": "1"})
    assert read_settings(config, None).entries == {
        "session.intra_op.allow_spinning": "1",
        "session.set_denormal_as_zero": "1",
    }


def test_side_by_side_is_off_unless_said_and_0_is_one_for_each_core() -> None:
    assert read_settings({}, None).side_by_side == 1
    assert read_settings(parameters(side_by_side="3"), None).side_by_side == 3
    assert read_settings(parameters(side_by_side="0"), None).side_by_side == usable_cores()
    assert read_settings(parameters(side_by_side="0"), 0).side_by_side == 1, "a run has the whole GPU by itself"


@pytest.mark.parametrize(("niceness", "policy"), [(3, "SCHED_OTHER"), (20, "SCHED_IDLE")])
def test_beyond_the_nicest_is_idle(niceness: int, policy: str) -> None:
    names = "{os.SCHED_OTHER: 'SCHED_OTHER', os.SCHED_IDLE: 'SCHED_IDLE'}"
    code = (
        f"import os, sys; sys.path.append({str(BACKEND)!r}); from onnx_session import set_niceness; "
        f"set_niceness({niceness}); "
        f"print(os.getpriority(os.PRIO_PROCESS, 0), {names}[os.sched_getscheduler(0)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    nice, found = done.stdout.split()
    assert found == policy
    assert policy == "SCHED_IDLE" or int(nice) >= niceness, "these tests may be nice themselves"


def test_tensorrt_comes_before_cuda_with_its_options_in_onnx_runtime_s_words() -> None:
    entry = {"name": "tensorrt", "parameters": {"precision_mode": "FP16", "max_workspace_size_bytes": "1024"}}
    assert read_settings(accelerated("gpu", entry), 0).providers == (
        (
            "TensorrtExecutionProvider",
            {"trt_max_workspace_size": "1024", "trt_fp16_enable": "1", "device_id": "0"},
        ),
        ("CUDAExecutionProvider", {"device_id": "0"}),
        CPU,
    )


def test_cuda_s_own_options_are_kept() -> None:
    entry = {"name": "cuda", "parameters": {"cudnn_conv_use_max_workspace": "0"}}
    assert read_settings(accelerated("gpu", entry), 1).providers == (
        ("CUDAExecutionProvider", {"cudnn_conv_use_max_workspace": "0", "device_id": "1"}),
        CPU,
    )


def test_cuda_s_parameters_of_the_native_backend_mean_the_same_here() -> None:
    limited = parameters(gpu_mem_limit="1073741824", arena_extend_strategy="1", cudnn_conv_algo_search="2")
    options = {
        "device_id": "0",
        "gpu_mem_limit": "1073741824",
        "arena_extend_strategy": "kSameAsRequested",
        "cudnn_conv_algo_search": "DEFAULT",
    }
    assert read_settings(limited, 0).providers == (("CUDAExecutionProvider", options), CPU)
    assert read_settings(limited, None).providers == (CPU,)


def test_a_model_s_parameters_win_over_the_accelerator_cuda_as_in_the_native_backend() -> None:
    entry = {"name": "cuda", "parameters": {"gpu_mem_limit": "1", "use_tf32": "0"}}
    found = read_settings(accelerated("gpu", entry) | parameters(gpu_mem_limit="2"), 0).providers[0]
    assert found == ("CUDAExecutionProvider", {"gpu_mem_limit": "2", "use_tf32": "0", "device_id": "0"})


def test_cuda_takes_its_limit_also_behind_tensorrt() -> None:
    config = accelerated("gpu", {"name": "tensorrt"}) | parameters(gpu_mem_limit="2")
    assert read_settings(config, 0).providers[1] == ("CUDAExecutionProvider", {"device_id": "0", "gpu_mem_limit": "2"})


def test_gpu_accelerators_do_not_touch_a_cpu_instance() -> None:
    assert read_settings(accelerated("gpu", {"name": "tensorrt"}), None).providers == (CPU,)


def test_openvino_comes_before_the_plain_cpu() -> None:
    assert read_settings(accelerated("cpu", {"name": "openvino"}), None).providers == (
        ("OpenVINOExecutionProvider", {}),
        CPU,
    )


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (parameters(intra_op_thread_count="two"), 'intra_op_thread_count is "two", not a whole number'),
        (parameters(arena_extend_strategy="kSameAsRequested"), "must be one of 0, 1"),
        (accelerated("gpu", {"name": "magic"}), 'no execution accelerator is called "magic"'),
        (accelerated("gpu", {"name": "tensorrt", "parameters": {"precision_mode": "INT4"}}), '"INT4" is none of'),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(config: dict[str, Any], says: str) -> None:
    with pytest.raises(ModelUnusable, match=says):
        read_settings(config, 0)


def test_an_accelerator_that_this_build_lacks_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(b"x")
    missing = SessionSettings(providers=(("DmlExecutionProvider", {}), CPU))
    with pytest.raises(ModelUnusable, match="has no DmlExecutionProvider"):
        open_session(file, missing)


@pytest.mark.parametrize("content", [b"", b"this is no model"])
def test_a_file_that_is_not_onnx_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(content)
    with pytest.raises(ModelUnusable, match=r"cannot load model\.onnx"):
        open_session(file, SessionSettings())


def test_operators_of_a_library_that_is_not_there_are_refused(tmp_path: Path) -> None:
    settings = read_settings({"model_operations": {"op_library_filename": [str(tmp_path / "none.so")]}}, None)
    (tmp_path / "model.onnx").write_bytes(b"x")
    with pytest.raises(ModelUnusable, match=r"none\.so"):
        open_session(tmp_path / "model.onnx", settings)


def test_a_missing_file_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(ModelUnusable, match="zooserve fetch"):
        open_session(tmp_path / "model.onnx", SessionSettings())


def test_the_arena_shrinks_only_where_asked() -> None:
    assert run_options(SessionSettings()) is None
    assert isinstance(run_options(SessionSettings(shrink_arena="cpu:0")), ort.RunOptions)


@pytest.mark.parametrize(
    ("quota", "cores"), [("max 100000", None), ("50000 100000", 1), ("100000 100000", 1), ("garbage", None)]
)
def test_a_container_s_quota_bounds_the_threads(tmp_path: Path, quota: str, cores: int | None) -> None:
    file = tmp_path / "cpu.max"
    file.write_text(quota)
    assert usable_cores(file) == (cores or len(os.sched_getaffinity(0)))
