"""The committed hardware variants, by Triton's own protobuf: the default's tensors, and what native backends read."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

from zooserve_ensembles.checking import Target, check_repository
from zooserve_ensembles.checking.hardware import native_backends
from zooserve_ensembles.families import FAMILIES
from zooserve_ensembles.families.transformer import encoder
from zooserve_ensembles.family import Family, generated_members
from zooserve_ensembles.pipeline import Dtype, Tensor
from zooserve_ensembles.rendering import rendered_files, written
from zooserve_ensembles.variants import ENGINE_CACHE, VARIANTS, Arena

ROOT = Path(__file__).parents[2]
ZOO = ROOT / "model_repository" / "zoo"
FILES = sorted(ZOO.glob("*/configs/*.pbtxt"))
GPU = pb.ModelInstanceGroup.KIND_GPU
ARENAS = {"embed_sparse_encoder": 7610, "embed_multilingual_encoder": 2240, "rerank_cross_encoder": 326}
"""MiB of a session with full batches; every other encoder on a GPU is MiniLM's 852."""


def parsed(file: Path) -> Any:
    return text_format.Parse(file.read_text(), pb.ModelConfig())


def default_of(file: Path) -> Any:
    return parsed(file.parents[1] / "config.pbtxt")


def contract(config: Any) -> Any:
    """All of a configuration that a caller can see."""
    return (
        config.name,
        config.max_batch_size,
        [(tensor.name, tensor.data_type, list(tensor.dims)) for tensor in config.input],
        [(tensor.name, tensor.data_type, list(tensor.dims)) for tensor in config.output],
        config.model_transaction_policy.decoupled,
        config.dynamic_batching.default_queue_policy,
        config.response_cache.enable,
    )


def variants(backend: str = "") -> Iterator[tuple[str, Any]]:
    for file in FILES:
        config = parsed(file)
        if backend in ("", config.backend):
            yield f"{config.name}/{file.stem}", config


def parameters(config: Any) -> dict[str, str]:
    return {key: value.string_value for key, value in config.parameters.items()}


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parents[1].name}-{file.stem}")
def test_a_variant_has_the_default_s_contract(file: Path) -> None:
    assert contract(parsed(file)) == contract(default_of(file))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("dims: [ 384 ]", "dims: [ 385 ]"),
        ("TYPE_FP32", "TYPE_FP16"),
        ('name: "sentence_embedding"', 'name: "vector"'),
    ],
)
def test_another_tensor_in_a_variant_is_seen(tmp_path: Path, old: str, new: str) -> None:
    written(tmp_path, rendered_files())
    file = tmp_path / "embed_encoder" / "configs" / "plan.pbtxt"
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))
    assert contract(parsed(file)) != contract(default_of(file))
    told = [finding.rule for finding in check_repository(tmp_path).findings if finding.place.file == file]
    assert "variant-contract" in told


def test_another_batch_size_in_a_variant_is_seen(tmp_path: Path) -> None:
    written(tmp_path, rendered_files())
    file = tmp_path / "embed_encoder" / "configs" / "plan.pbtxt"
    file.write_text(file.read_text().replace("max_batch_size: 64", "max_batch_size: 32"))
    assert contract(parsed(file)) != contract(default_of(file))
    told = [finding.rule for finding in check_repository(tmp_path).findings if finding.place.file == file]
    assert "batch-above-member" in told


def test_every_encoder_has_every_variant_and_no_name_is_unknown() -> None:
    ragged = [
        file.parent
        for file in ZOO.glob("*/config.pbtxt")
        if (config := parsed(file)).backend == "onnxruntime" and any(each.allow_ragged_batch for each in config.input)
    ]
    assert len(ragged) >= 9
    for folder in ragged:
        assert {file.stem for file in folder.glob("configs/*.pbtxt")} == set(VARIANTS), folder.name
    assert {file.stem for file in FILES} == set(VARIANTS)


def test_the_zoo_has_no_fault_for_the_container_either() -> None:
    report = check_repository(ZOO, Target.CONTAINER)
    ours = ("accelerator-", "backend-parameter", "ragged-", "variant-", "instance-")
    assert [str(finding) for finding in report.findings if finding.rule.startswith(ours)] == []


@pytest.mark.parametrize("backend", ["onnxruntime", "tensorrt"])
def test_a_native_backend_reads_every_parameter_and_takes_its_value(backend: str) -> None:
    known = native_backends()[backend]["parameters"]
    found = list(variants(backend))
    assert found
    for name, config in found:
        for key, value in parameters(config).items():
            assert re.fullmatch(known[key], value), f"{name}: {key}"


def test_nothing_is_ragged_for_a_native_backend() -> None:
    for name, config in (*variants("onnxruntime"), *variants("tensorrt")):
        assert not [tensor.name for tensor in config.input if tensor.allow_ragged_batch], name


def test_threads_are_said_wherever_onnx_runtime_would_choose_them() -> None:
    for name, config in variants("onnxruntime"):
        assert int(parameters(config)["intra_op_thread_count"]) >= 1, name


def test_a_session_on_a_gpu_has_a_limit_that_was_measured_and_a_card() -> None:
    on_gpu = [(name, config) for name, config in variants("onnxruntime") if config.instance_group[0].kind == GPU]
    assert len(on_gpu) >= 20
    for name, config in on_gpu:
        (group,) = config.instance_group
        assert list(group.gpus) == [0], name
        limit = int(parameters(config)["gpu_mem_limit"]) >> 20
        assert 1 < limit / ARENAS.get(config.name, 852) < 1.5, name
        # An accelerator "cuda" would be the wrong place: the backend replaces what stands there.
        names = [entry.name for entry in config.optimization.execution_accelerators.gpu_execution_accelerator]
        assert "cuda" not in names, name


def test_the_measured_arenas_are_those_on_record() -> None:
    record = json.loads((ROOT / "benchmarks" / "recorded" / "gpu_memory_h200.json").read_text())
    held = {
        (each["model"], each["sessions"]): each["mib"]
        for each in record
        if each["reading"] == "growth" and each["strategy"] == "kSameAsRequested" and not each["given_back"]
    }
    one, two = held["embed_encoder", 1], held["embed_encoder", 2]
    context, weights_mib = 2 * one["mixed"] - two["mixed"], 86
    session = two["opened"] - one["opened"] - weights_mib
    assert (context, session) == (531, 96)
    arenas = {model: mib["mixed"] - context - session for (model, sessions), mib in held.items() if sessions == 1}
    assert arenas == {"embed_encoder": 852, **ARENAS}


def test_what_integer_products_or_a_shared_card_rule_out_stays_on_the_cpu() -> None:
    on_cpu = {name for name, config in variants("onnxruntime") if config.instance_group[0].kind != GPU}
    assert on_cpu == {
        "embed_sparse_encoder/shared",
        *(f"{model}/{name}" for model in ("embed_int8_encoder", "language_encoder") for name in VARIANTS),
    }


def test_what_runs_whole_on_the_cpu_gives_its_memory_back_and_a_card_keeps_its_limit() -> None:
    for name, config in variants("onnxruntime"):
        given_back = parameters(config).get("memory.enable_memory_arena_shrinkage")
        assert given_back == (None if config.instance_group[0].kind == GPU else "cpu:0"), name


def test_the_measured_instances_for_bulk_stand_in_h200() -> None:
    counts = {name: config.instance_group[0].count for name, config in variants()}
    assert counts["embed_bulk_tokenizer/h200"] == 12
    assert counts["embed_bulk_encoder/h200"] == 2
    assert counts["embed_encoder/h200"] == 1
    assert counts["embed_bulk_tokenizer/gpu"] == 4


def test_tensorrt_s_profiles_hold_every_bucket_and_its_engines_lie_where_compose_mounts_them() -> None:
    made = {member.name: member for member in generated_members(FAMILIES)}
    found = 0
    for name, config in variants("onnxruntime"):
        for entry in config.optimization.execution_accelerators.gpu_execution_accelerator:
            member, said = made[config.name], dict(entry.parameters)
            found += 1
            assert set(said) <= set(native_backends()["onnxruntime"]["gpu"]["tensorrt"]), name
            assert said["trt_engine_cache_path"] == said["trt_timing_cache_path"] == ENGINE_CACHE
            assert said["trt_engine_cache_prefix"] == config.name, "two models with one graph must not write one file"
            least, largest = (
                dict(part.split(":") for part in said[f"trt_profile_{which}_shapes"].split(","))
                for which in ("min", "max")
            )
            assert set(least) == set(largest) == {tensor.name for tensor in config.input}
            assert set(least.values()) == {f"1x{member.buckets[0]}"}
            assert set(largest.values()) == {f"{config.max_batch_size}x{member.buckets[-1]}"}
    assert found == 6
    assert f":{ENGINE_CACHE}" in (ROOT / "docker-compose.yml").read_text()


def test_a_plan_opens_a_profile_for_each_bucket_and_names_no_file() -> None:
    made = {member.name: member for member in generated_members(FAMILIES)}
    plans = list(variants("tensorrt"))
    assert len(plans) == 4  # the encoders that give a vector: what the golden gate of a plan compares
    for name, config in plans:
        (group,) = config.instance_group
        assert list(group.profile) == [str(place) for place in range(len(made[config.name].buckets))], name
        assert not config.default_model_filename
        assert not config.cc_model_filenames


def test_a_start_meets_the_largest_batch_before_a_caller_does() -> None:
    for name, config in variants("onnxruntime"):
        if config.instance_group[0].kind == GPU:
            sample = config.model_warmup[-1]
            longest = max(each.inputs["input_ids"].dims[0] for each in config.model_warmup)
            assert (sample.batch_size, sample.inputs["input_ids"].dims[0]) == (config.max_batch_size, longest), name


def test_an_encoder_that_nobody_measured_has_no_limit() -> None:
    member = encoder("other", "An encoder.", outputs=(Tensor("vector", Dtype.FP32, (8,)),))
    assert "gpu_mem_limit" not in member.variants["gpu"].parameters
    limited = encoder("other", "An encoder.", outputs=member.outputs, arena=Arena(measured_mib=10, limit_mib=12))
    assert limited.variants["gpu"].parameters["gpu_mem_limit"] == str(12 << 20)


def test_a_variant_is_rendered_and_told_when_it_is_not(tmp_path: Path) -> None:
    family = Family(members=(encoder("other", "An encoder.", outputs=(Tensor("vector", Dtype.FP32, (8,)),)),))
    written(tmp_path, rendered_files([family]))
    assert {file.stem for file in tmp_path.glob("other/configs/*")} == set(VARIANTS)
