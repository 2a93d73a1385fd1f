import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zooserve.errors import DiskFull, EngineRefused
from zooserve_ensembles.engines.building import Options, built
from zooserve_ensembles.engines.command import golden_texts
from zooserve_ensembles.engines.encoder import Encoder, read_encoder
from zooserve_ensembles.engines.gate import GoldenText
from zooserve_ensembles.engines.identity import Machine
from zooserve_ensembles.engines.manifest import read_manifest

STEM = "nvidia-h200_trt-10.14.1.48_26.02"


@pytest.fixture
def encoder(repository: Path) -> Encoder:
    return read_encoder(repository, "small_encoder")


@pytest.fixture
def golden(repository: Path, encoder: Encoder) -> tuple[GoldenText, ...]:
    return golden_texts(repository, encoder, repository.parent / "golden")


def files(encoder: Encoder) -> set[str]:
    return {path.name for path in encoder.folder.iterdir()} - {"model.onnx", ".engine.lock"}


def test_a_build_leaves_a_proven_plan_and_its_manifest(
    encoder: Encoder, golden: tuple[GoldenText, ...], machine: Machine, builder: Any
) -> None:
    path, manifest = built(encoder, golden, machine, builder, Options())
    assert files(encoder) == {f"{STEM}.plan", f"{STEM}.json"}
    assert read_manifest((encoder.folder / f"{STEM}.json").read_text()) == manifest
    assert hashlib.sha256(path.read_bytes()).hexdigest() == manifest.plan_sha256
    assert manifest.golden.least_cosine > 0.99999
    assert [(speed.length, speed.batch) for speed in manifest.speeds] == [(4, 1), (4, 4), (16, 1), (16, 4)]
    (order,) = builder.orders
    assert (order.inputs, order.outputs, order.tf32) == (encoder.inputs, ("sentence_embedding",), False)
    assert b"MultiHeadAttention" not in order.graph


def test_a_failed_gate_leaves_a_report_and_no_plan(
    encoder: Encoder, golden: tuple[GoldenText, ...], machine: Machine, builder: Any
) -> None:
    wrong = [replace(text, vector=np.roll(text.vector, 1)) for text in golden]
    with pytest.raises(EngineRefused, match=r"fails its golden gate and was not kept: the least cosine .*failed\.json"):
        built(encoder, wrong, machine, builder, Options())
    assert files(encoder) == {f"{STEM}.failed.json"}
    report = json.loads((encoder.folder / f"{STEM}.failed.json").read_text())
    assert report["golden"]["least_cosine"] < 0.999
    assert report["speeds"] == []
    built(encoder, golden, machine, builder, Options())
    assert files(encoder) == {f"{STEM}.plan", f"{STEM}.json"}


def test_a_failed_gate_keeps_the_plan_that_was_there(
    encoder: Encoder, golden: tuple[GoldenText, ...], machine: Machine, builder: Any
) -> None:
    path, _ = built(encoder, golden, machine, builder, Options())
    before = path.read_bytes()
    with pytest.raises(EngineRefused):
        built(encoder, [replace(text, vector=-text.vector) for text in golden], machine, builder, Options())
    assert path.read_bytes() == before


def test_a_builder_that_fails_leaves_nothing(
    encoder: Encoder, golden: tuple[GoldenText, ...], machine: Machine, builder: Any
) -> None:
    class Failing(type(builder)):  # type: ignore[misc]
        def build(self, order: Any) -> bytes:
            raise EngineRefused("TensorRT does not read the graph: Erf: no importer")

    with pytest.raises(EngineRefused, match="Erf"):
        built(encoder, golden, machine, Failing(), Options())
    assert files(encoder) == set()


def test_a_plan_that_does_not_load_leaves_nothing(
    encoder: Encoder, golden: tuple[GoldenText, ...], machine: Machine, builder: Any
) -> None:
    class NotLoading(type(builder)):  # type: ignore[misc]
        @contextmanager
        def loaded(self, plan: bytes) -> Iterator[Any]:
            raise EngineRefused("the engine cannot run on this GPU")
            yield

    with pytest.raises(EngineRefused, match="cannot run on this GPU"):
        built(encoder, golden, machine, NotLoading(), Options())
    assert files(encoder) == set()


def test_two_builds_of_one_model_do_not_meet(
    encoder: Encoder, golden: tuple[GoldenText, ...], machine: Machine, builder: Any
) -> None:
    with (encoder.folder / ".engine.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(EngineRefused, match="Another build of small_encoder 1 is running"):
            built(encoder, golden, machine, builder, Options())
    assert builder.orders == []
    built(encoder, golden, machine, builder, Options())


def test_a_killed_build_leaves_no_plan_and_no_lock(
    repository: Path, encoder: Encoder, golden: tuple[GoldenText, ...], machine: Machine, builder: Any
) -> None:
    """It is killed in the middle of writing the plan, by the signal that nobody can catch."""
    code = f"""
import os, signal
from pathlib import Path
from zooserve.weights import disk
from zooserve_ensembles.engines import building
from zooserve_ensembles.engines.encoder import read_encoder
with building._alone(read_encoder(Path({str(repository)!r}), "small_encoder")):
    with disk.write_whole(Path({str(encoder.folder / (STEM + ".plan"))!r}), 3) as file:
        file.write(b"half")
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    (left,) = files(encoder)
    assert left.startswith(".")
    assert not left.endswith(".plan")
    built(encoder, golden, machine, builder, Options())
    assert files(encoder) == {f"{STEM}.plan", f"{STEM}.json"}


def test_too_little_room_is_told_before_the_build(
    encoder: Encoder, golden: tuple[GoldenText, ...], machine: Machine, builder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: _Usage())
    with pytest.raises(EngineRefused, match="has 10 bytes free, and a plan may take"):
        built(encoder, golden, machine, builder, Options())
    assert builder.orders == []


class _Usage:
    free = 10


def test_a_disk_that_fills_up_leaves_no_plan(
    encoder: Encoder, golden: tuple[GoldenText, ...], machine: Machine, builder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFull, match="no room for"):
        built(encoder, golden, machine, builder, Options())
    assert files(encoder) == set()


@pytest.mark.parametrize("best", [0, 5])
def test_a_best_batch_outside_the_model_s_is_refused(
    encoder: Encoder, golden: tuple[GoldenText, ...], machine: Machine, builder: Any, best: int
) -> None:
    with pytest.raises(EngineRefused, match=f"--opt-batch {best} lies outside 1 to 4"):
        built(encoder, golden, machine, builder, Options(opt_batch=best))


def test_golden_texts_need_a_tokenizer_of_the_same_buckets(repository: Path, encoder: Encoder) -> None:
    config = repository / "small_tokenizer" / "config.pbtxt"
    config.write_text(config.read_text().replace("4,16", "4,32"))
    with pytest.raises(EngineRefused, match=r"small_tokenizer pads to \(4, 32\), and small_encoder warms \(4, 16\)"):
        golden_texts(repository, encoder, repository.parent / "golden")


def test_golden_texts_are_found_for_a_bulk_ensemble_too(repository: Path, encoder: Encoder) -> None:
    (repository / "small").rename(repository / "small_bulk")
    assert len(golden_texts(repository, encoder, repository.parent / "golden")) == 4


def test_no_golden_vectors_means_no_build(repository: Path, encoder: Encoder) -> None:
    (repository.parent / "golden" / "small.json").unlink()
    with pytest.raises(EngineRefused, match=r"has no golden vectors .* \(small\): name the file with --golden"):
        golden_texts(repository, encoder, repository.parent / "golden")
    shutil.rmtree(repository / "small")
    with pytest.raises(EngineRefused, match=r"No ensemble of .* feeds small_encoder"):
        golden_texts(repository, encoder, None)


@pytest.mark.parametrize(
    ("content", "why"), [('{"rows": []}', "no rows"), ("{}", "no golden vectors"), ("x", "no golden")]
)
def test_a_golden_file_that_proves_nothing_is_refused(
    repository: Path, encoder: Encoder, content: str, why: str
) -> None:
    file = repository.parent / "other.json"
    file.write_text(content)
    with pytest.raises(EngineRefused, match=why):
        golden_texts(repository, encoder, file)
