import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from zooserve.errors import EngineRefused
from zooserve_ensembles.engines.building import Options, built
from zooserve_ensembles.engines.command import checked, golden_texts, used
from zooserve_ensembles.engines.encoder import Encoder, read_encoder
from zooserve_ensembles.engines.identity import Gpu, Machine
from zooserve_ensembles.engines.placing import SERVED, candidates, placed


@pytest.fixture
def encoder(repository: Path, machine: Machine, builder: Any) -> Encoder:
    """With a plan that was built on `machine`."""
    made = read_encoder(repository, "small_encoder")
    built(made, golden_texts(repository, made, repository.parent / "golden"), machine, builder, Options())
    return made


def manifest_of(encoder: Encoder) -> Path:
    return next(encoder.folder.glob("*_trt-*.json"))


def plan_of(encoder: Encoder) -> Path:
    return next(encoder.folder.glob("*_trt-*.plan"))


def test_a_build_alone_puts_nothing_in_place(encoder: Encoder) -> None:
    assert not (encoder.folder / SERVED).exists()


def test_the_fitting_plan_is_put_in_place_and_stays(encoder: Encoder, machine: Machine) -> None:
    candidate = placed(encoder, machine)
    served = encoder.folder / SERVED
    assert served.read_bytes() == candidate.plan.read_bytes()
    before = served.stat()
    placed(encoder, machine)
    assert served.stat().st_mtime_ns == before.st_mtime_ns
    assert not list(encoder.folder.glob(f".{SERVED}*"))


def test_a_plan_is_copied_where_no_link_can_be_made(
    encoder: Encoder, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(Path, "hardlink_to", none)
    placed(encoder, machine)
    served = encoder.folder / SERVED
    assert served.read_bytes() == plan_of(encoder).read_bytes()
    assert not served.samefile(plan_of(encoder))
    placed(encoder, machine)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"gpus": (Gpu("NVIDIA H100", "9.0"),)}, "built on NVIDIA H200, and here is NVIDIA H100"),
        ({"tensorrt": "10.15.0.1"}, "built with TensorRT 10.14.1.48, and here is 10.15.0.1"),
        ({"container": "26.06"}, "built with container 26.02, and here is 26.06"),
    ],
)
def test_another_machine_gets_no_plan_and_is_told_to_build_one(
    encoder: Encoder, machine: Machine, change: dict[str, object], why: str
) -> None:
    placed(encoder, machine)
    other = replace(machine, **change)  # type: ignore[arg-type]
    with pytest.raises(EngineRefused, match=f"{why}.*Build one here: python3 -m .* build small_encoder --repository"):
        placed(encoder, other)
    assert not (encoder.folder / SERVED).exists()
    assert plan_of(encoder).exists()
    placed(encoder, machine)


def test_a_new_graph_makes_its_plans_old(encoder: Encoder, machine: Machine) -> None:
    placed(encoder, machine)
    with encoder.onnx.open("ab") as file:
        file.write(b"\x32\x00")
    with pytest.raises(EngineRefused, match=r"built of another model\.onnx"):
        placed(encoder, machine)
    assert not (encoder.folder / SERVED).exists()


def damaged_plan(encoder: Encoder) -> None:
    with plan_of(encoder).open("r+b") as file:
        file.truncate(20)


def lost_manifest(encoder: Encoder) -> None:
    manifest_of(encoder).unlink()


def cut_manifest(encoder: Encoder) -> None:
    manifest_of(encoder).write_text(manifest_of(encoder).read_text()[:50])


def of_another_model(encoder: Encoder) -> None:
    edited(encoder, model="embed_encoder")


def of_other_buckets(encoder: Encoder) -> None:
    edited(encoder, profiles=[{"length": 4, "opt_batch": 4, "max_batch": 4}])


def of_smaller_batches(encoder: Encoder) -> None:
    profiles = json.loads(manifest_of(encoder).read_text())["profiles"]
    edited(encoder, profiles=[profile | {"max_batch": 2} for profile in profiles])


def of_a_failed_gate(encoder: Encoder) -> None:
    golden = json.loads(manifest_of(encoder).read_text())["golden"]
    edited(encoder, golden=golden | {"faults": ["no"]})


def edited(encoder: Encoder, **changes: object) -> None:
    document = json.loads(manifest_of(encoder).read_text()) | changes
    manifest_of(encoder).write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("break_it", "why"),
    [
        (damaged_plan, "not the file that its manifest names"),
        (lost_manifest, "its manifest .* is missing"),
        (cut_manifest, "cannot be used: it is no manifest"),
        (of_another_model, "is a plan of embed_encoder"),
        (of_other_buckets, "other buckets or smaller batches"),
        (of_smaller_batches, "other buckets or smaller batches"),
        (of_a_failed_gate, "failed its golden gate"),
    ],
)
def test_a_plan_that_is_not_what_it_says_is_never_served(
    encoder: Encoder, machine: Machine, break_it: Any, why: str
) -> None:
    break_it(encoder)
    with pytest.raises(EngineRefused, match=why):
        placed(encoder, machine)
    assert not (encoder.folder / SERVED).exists()


def test_a_plan_in_place_that_nobody_vouches_for_is_replaced(encoder: Encoder, machine: Machine) -> None:
    (encoder.folder / SERVED).write_bytes(b"by hand")
    assert [result.good for result in checked(encoder.folder.parents[1], ["small_encoder"], machine)] == [True, False]
    placed(encoder, machine)
    assert (encoder.folder / SERVED).read_bytes() == plan_of(encoder).read_bytes()


def test_plans_of_two_machines_lie_side_by_side(
    encoder: Encoder, machine: Machine, builder: Any, repository: Path
) -> None:
    newer = replace(machine, container="26.06")
    golden = golden_texts(repository, encoder, repository.parent / "golden")
    built(encoder, golden, newer, builder, Options())
    assert [candidate.fits for candidate in candidates(encoder, machine)] == [True, False]
    assert placed(encoder, newer).plan.name == "nvidia-h200_trt-10.14.1.48_26.06.plan"
    assert placed(encoder, machine).plan.name == "nvidia-h200_trt-10.14.1.48_26.02.plan"


def test_check_and_use_tell_each_model_s_state(encoder: Encoder, machine: Machine, repository: Path) -> None:
    lines = [result.line for result in checked(repository, ["small_encoder"], machine)]
    assert lines[0].endswith(".plan fits")
    assert "no plan is in place; put it there with `use small_encoder`" in lines[1]
    results = list(used(repository, ["small_encoder", "nobody"], machine))
    assert [result.good for result in results] == [True, False]
    assert "holds no model nobody" in results[1].line
    (result,) = checked(repository, ["small_encoder"], machine)
    assert (result.good, result.line.endswith("in place")) == (True, True)
    other = replace(machine, gpus=(Gpu("NVIDIA L4", "8.9"),))
    refused, advice = checked(repository, ["small_encoder"], other)
    assert "must not be served here" in refused.line
    assert not advice.good
