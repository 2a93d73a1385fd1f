"""What configurations ask of the hardware, held to what the native backends read."""

from typing import Any

import pytest

from zooserve_ensembles.checking import Severity, Target

MODEL = """name: "m"
backend: "onnxruntime"
max_batch_size: 8
input [
  { name: "ids" data_type: TYPE_INT64 dims: [ -1 ] }
]
output [
  { name: "vector" data_type: TYPE_FP32 dims: [ 4 ] }
]
instance_group [
  { count: 1 kind: KIND_GPU gpus: [ 0 ] }
]
"""
ACCELERATED = """optimization {
  execution_accelerators {
    %s_execution_accelerator [
      {
        name: "%s"
        parameters { key: "%s" value: "%s" }
      }
    ]
  }
}
"""
PARAMETER = 'parameters { key: "%s" value { string_value: "%s" } }\n'
RAGGED = MODEL.replace("dims: [ -1 ] }", "dims: [ -1 ] allow_ragged_batch: true }")


def rules(shelf: Any, target: Target | None = Target.CONTAINER) -> list[str]:
    return [finding.rule for finding in shelf.check(target).findings]


@pytest.mark.parametrize(
    ("side", "name", "key", "value", "rule", "line"),
    [
        ("gpu", "tensort", "precision_mode", "FP16", "accelerator-unknown", 17),
        ("gpu", "openvino", "precision_mode", "FP16", "accelerator-unknown", 17),
        ("cpu", "tensorrt", "precision_mode", "FP16", "accelerator-unknown", 17),
        ("gpu", "tensorrt", "trt_fp16_enable", "1", "accelerator-parameter", 18),
        ("gpu", "tensorrt", "precision_mode", "FP8", "accelerator-parameter", 18),
        ("gpu", "cuda", "cuda_mem_limit", "1", "accelerator-parameter", 18),
        ("gpu", "cuda", "gpu_mem_limit", "1073741824", "accelerator-replaced", 18),
        ("gpu", "cuda", "arena_extend_strategy", "kSameAsRequested", "accelerator-replaced", 18),
    ],
)
def test_an_accelerator_that_the_backend_would_not_take(
    empty: Any, side: str, name: str, key: str, value: str, rule: str, line: int
) -> None:
    empty.add("m", MODEL + ACCELERATED % (side, name, key, value), code="")
    (found,) = [finding for finding in empty.check(Target.CONTAINER).findings if finding.rule.startswith("accelerator")]
    assert (found.rule, found.place.line) == (rule, line)
    assert found.severity is (Severity.WARNING if rule == "accelerator-replaced" else Severity.ERROR)


@pytest.mark.parametrize(
    ("side", "name", "key", "value"),
    [
        ("gpu", "tensorrt", "precision_mode", "BF16"),
        ("gpu", "tensorrt", "trt_engine_cache_path", "/var/cache"),
        ("gpu", "cuda", "use_tf32", "0"),
    ],
)
def test_what_the_backend_takes_is_no_finding(empty: Any, side: str, name: str, key: str, value: str) -> None:
    empty.add("m", MODEL + ACCELERATED % (side, name, key, value), code="")
    assert not [rule for rule in rules(empty) if rule.startswith("accelerator")]


@pytest.mark.parametrize(
    ("backend", "key", "value"),
    [
        ("onnxruntime", "arena_extend_strategy", "kSameAsRequested"),
        ("onnxruntime", "gpu_mem_limit", "1 GiB"),
        ("onnxruntime", "intra_op_thread_count", "two"),
        ("onnxruntime", "memory.enable_memory_arena_shrinkage", "1"),
        ("tensorrt", "execution_context_allocation_strategy", "DYNAMIC"),
    ],
)
def test_a_parameter_s_value_that_the_backend_would_not_take(empty: Any, backend: str, key: str, value: str) -> None:
    empty.add("m", MODEL.replace("onnxruntime", backend) + PARAMETER % (key, value), code="")
    (found,) = [finding for finding in empty.check(Target.CONTAINER).findings if finding.rule == "backend-parameter"]
    assert found.place.line == 13
    assert key in found.message


@pytest.mark.parametrize(("key", "value"), [("enable_mem_arena", "False"), ("intra_op_thread_count", "-1")])
def test_a_value_that_the_backend_takes_is_no_finding(empty: Any, key: str, value: str) -> None:
    empty.add("m", MODEL + PARAMETER % (key, value), code="")
    assert "backend-parameter" not in rules(empty)


def test_a_parameter_of_one_s_own_is_none_of_the_backend_s_business(empty: Any) -> None:
    empty.add("m", MODEL + PARAMETER % ("run_elements", "many"), code="")
    assert "backend-parameter" not in rules(empty)


def test_a_fault_in_a_variant_is_found_there(empty: Any) -> None:
    empty.add("m", MODEL, code="")
    folder = empty.root / "m" / "configs"
    folder.mkdir()
    (folder / "gpu.pbtxt").write_text(MODEL + PARAMETER % ("gpu_mem_limit", "much"))
    (found,) = [finding for finding in empty.check(Target.CONTAINER).findings if finding.rule == "backend-parameter"]
    assert found.place.file == folder / "gpu.pbtxt"


def test_ragged_inputs_are_not_for_the_native_backend(empty: Any) -> None:
    empty.add("m", RAGGED, code="")
    told = {finding.rule: finding for finding in empty.check(Target.CONTAINER).findings}
    assert told["ragged-native"].severity is Severity.ERROR
    assert told["ragged-native"].place.line == 5
    assert "ragged-native" in rules(empty, None)
    assert "ragged-native" not in rules(empty, Target.EMBEDDED)


def test_lengths_beside_a_ragged_input_make_it_the_native_backend_s(empty: Any) -> None:
    lengths = (
        'batch_input [ { kind: BATCH_ELEMENT_COUNT target_name: "n" data_type: TYPE_FP32 source_input: "ids" } ]\n'
    )
    empty.add("m", RAGGED + lengths, code="")
    assert "ragged-native" not in rules(empty)


def test_a_model_that_lacks_a_variant_that_others_have(empty: Any) -> None:
    for name, has in (("one", ["gpu", "h200"]), ("two", ["gpu"]), ("three", [])):
        empty.add(name, RAGGED.replace('"m"', f'"{name}"'), code="")
        for variant in has:
            file = empty.root / name / "configs" / f"{variant}.pbtxt"
            file.parent.mkdir(exist_ok=True)
            file.write_text(MODEL.replace('"m"', f'"{name}"'))
    missing = [finding for finding in empty.check(Target.CONTAINER).findings if finding.rule == "variant-missing"]
    assert [(finding.place.file.parent.name, finding.message.split()[0:2]) for finding in missing] == [
        ("three", ["with", "--model-config-name=gpu"]),
        ("three", ["with", "--model-config-name=h200"]),
        ("two", ["with", "--model-config-name=h200"]),
    ]
    assert {finding.severity for finding in missing} == {Severity.ERROR}


def test_a_profile_is_a_number(empty: Any) -> None:
    empty.add("m", MODEL.replace("gpus: [ 0 ]", 'profile: [ "0", "long" ]'), code="")
    (found,) = [finding for finding in empty.check(Target.CONTAINER).findings if finding.rule == "instance-profile"]
    assert '"long" is no number' in found.message
