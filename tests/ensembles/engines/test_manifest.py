import json
from dataclasses import replace

import pytest

from zooserve_ensembles.engines.gate import GateReport
from zooserve_ensembles.engines.identity import Gpu, Machine, plan_stem
from zooserve_ensembles.engines.manifest import BadManifest, Manifest, misfits, read_manifest
from zooserve_ensembles.engines.profiles import Profile, profile_for, profiles_of
from zooserve_ensembles.engines.speeds import Speed, measured

MANIFEST = Manifest(
    model="embed_encoder",
    version="1",
    built_at="2026-11-30T19:00:00+00:00",
    gpu=Gpu("NVIDIA H200", "9.0"),
    tensorrt="10.14.1.48",
    container="26.02",
    driver="580.159.04",
    onnx_sha256="aa",
    plan_sha256="bb",
    plan_bytes=3,
    profiles=(Profile(16, 64, 64), Profile(32, 64, 64)),
    precision="fp32",
    build_s=12.5,
    golden=GateReport(42, 0.9999, 0.99999, {"16": 1.0, "32": 0.99999}),
    speeds=(Speed(16, 1, 0.5, 2000.0),),
)


def test_a_manifest_survives_its_file() -> None:
    assert read_manifest(MANIFEST.as_json()) == MANIFEST
    assert MANIFEST.golden.passed


def test_a_failed_gate_is_still_failed_when_it_is_read_again() -> None:
    failed = replace(MANIFEST, golden=replace(MANIFEST.golden, faults=("no",)))
    assert not read_manifest(failed.as_json()).golden.passed


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"form": 1}', "null", MANIFEST.as_json().replace('"form": 1', '"form": 2')]
)
def test_what_is_no_manifest_is_told(text: str) -> None:
    with pytest.raises(BadManifest):
        read_manifest(text)


def test_a_manifest_of_more_fields_is_no_manifest_of_ours() -> None:
    document = json.loads(MANIFEST.as_json()) | {"more": 1}
    with pytest.raises(BadManifest):
        read_manifest(json.dumps(document))


def test_its_own_machine_is_fit(machine: Machine) -> None:
    assert misfits(MANIFEST, machine, "aa") == []


@pytest.mark.parametrize(
    ("change", "digest", "why"),
    [
        (
            {"gpus": (Gpu("NVIDIA H100 80GB HBM3", "9.0"),)},
            "aa",
            "built on NVIDIA H200, and here is NVIDIA H100 80GB HBM3",
        ),
        ({"gpus": (Gpu("NVIDIA H200", "9.0"), Gpu("NVIDIA L4", "8.9"))}, "aa", "and here is NVIDIA L4"),
        ({"gpus": ()}, "aa", "there is no GPU here"),
        ({"tensorrt": "10.14.1.49"}, "aa", "built with TensorRT 10.14.1.48, and here is 10.14.1.49"),
        ({"tensorrt": ""}, "aa", "and here is none"),
        ({"container": "26.06"}, "aa", "built with container 26.02, and here is 26.06"),
        ({}, "cc", "built of another model.onnx"),
    ],
)
def test_another_machine_or_graph_is_refused_by_what_differs(
    machine: Machine, change: dict[str, object], digest: str, why: str
) -> None:
    (found,) = misfits(MANIFEST, replace(machine, **change), digest)  # type: ignore[arg-type]
    assert why in found


def test_another_driver_is_no_fault(machine: Machine) -> None:
    assert misfits(MANIFEST, replace(machine, driver="590.1"), "aa") == []


@pytest.mark.parametrize(
    ("gpu", "stem"),
    [
        ("NVIDIA H200", "nvidia-h200_trt-10.14.1.48_26.02"),
        ("NVIDIA RTX 6000 Ada Generation", "nvidia-rtx-6000-ada-generation_trt-10.14.1.48_26.02"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "nvidia-h100-80gb-hbm3-mig-1g.10gb_trt-10.14.1.48_26.02"),
        ("../../x", "x_trt-10.14.1.48_26.02"),
    ],
)
def test_a_plan_s_name_says_gpu_tensorrt_and_container(machine: Machine, gpu: str, stem: str) -> None:
    assert plan_stem(replace(machine, gpus=(Gpu(gpu, "9.0"),))) == stem


def test_there_is_a_profile_a_bucket_in_triton_s_order() -> None:
    profiles = profiles_of((16, 32), 64)
    assert [profile.shapes for profile in profiles] == [((1, 16), (64, 16), (64, 16)), ((1, 32), (64, 32), (64, 32))]
    assert profile_for(32, profiles) == 1
    assert profiles_of((16,), 64, 8)[0].shapes == ((1, 16), (8, 16), (64, 16))
    with pytest.raises(KeyError):
        profile_for(17, profiles)


def test_speeds_are_medians_of_one_text_and_of_full_batches() -> None:
    seen: list[tuple[int, ...]] = []
    ticks = iter(range(10_000))

    def clock() -> float:
        return next(ticks) * 0.25

    speeds = measured(lambda inputs: seen.append(inputs["input_ids"].shape), profiles_of((16, 32), 4), 7, clock)
    assert [(speed.length, speed.batch, speed.batch_ms, speed.texts_per_s) for speed in speeds] == [
        (16, 1, 250.0, 4.0),
        (16, 4, 250.0, 16.0),
        (32, 1, 250.0, 4.0),
        (32, 4, 250.0, 16.0),
    ]
    assert set(seen) == {(1, 16), (4, 16), (1, 32), (4, 32)}
