"""A build from its beginning to the file: one at a time a model, proven before it has its name, whole or not at all."""

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from zooserve.errors import EngineRefused
from zooserve.weights.disk import write_whole
from zooserve_ensembles.engines.builder import Builder, Engine, Order
from zooserve_ensembles.engines.encoder import Encoder
from zooserve_ensembles.engines.gate import GateReport, GoldenText, Run, judged
from zooserve_ensembles.engines.identity import Machine, plan_stem
from zooserve_ensembles.engines.manifest import Manifest
from zooserve_ensembles.engines.profiles import Profile, profile_for, profiles_of
from zooserve_ensembles.engines.speeds import Speed, measured

__all__ = ["Options", "built"]

_LOCK = ".engine.lock"
_ROOM = 3
"""Times the graph's size that must be free: the plan holds the weights once, and TensorRT's kernels."""


@dataclass(frozen=True)
class Options:
    """What a user may choose."""

    tf32: bool = False
    opt_batch: int | None = None
    workspace_bytes: int = 4 << 30


def built(
    encoder: Encoder,
    golden: Sequence[GoldenText],
    machine: Machine,
    builder: Builder,
    options: Options,
    *,
    clock: Callable[[], float] = time.perf_counter,
    say: Callable[[str], object] = lambda _: None,
) -> tuple[Path, Manifest]:
    """Build, prove and write the plan with its manifest. Raises EngineRefused; then no plan was written.

    A plan that fails its golden gate leaves `<name>.failed.json`, its report.
    """
    with _alone(encoder):
        _room(encoder)
        profiles = _profiles(encoder, options)
        stem = encoder.folder / plan_stem(machine)
        digest, graph = encoder.digest(), encoder.graph()
        say(f"Building {encoder.model} {encoder.version} for {machine.gpus[0].name}, TensorRT {machine.tensorrt}.")
        started = clock()
        order = Order(graph.content, encoder.inputs, encoder.outputs, profiles, options.tf32, options.workspace_bytes)
        plan = builder.build(order)
        build_s = round(clock() - started, 1)
        say(f"Built in {build_s} s, {len(plan):,} bytes; asking it for {len(golden)} golden texts.")
        with builder.loaded(plan) as engine:
            run = _running(engine, profiles)
            report = judged(golden, run, encoder.vector, encoder.buckets, encoder.max_batch_size)
            speeds = measured(run, profiles, golden[0].ids[0], clock) if report.passed else ()
        manifest = _manifest(encoder, digest, machine, profiles, options, plan, build_s, report, speeds)
        return _kept(stem, plan, manifest), manifest


def _kept(stem: Path, plan: bytes, manifest: Manifest) -> Path:
    """Write both files, the plan first: without its manifest, or with an older one, it is served by nobody."""
    failed = _beside(stem, ".failed.json")
    if not manifest.golden.passed:
        _write(failed, manifest.as_json().encode())
        raise EngineRefused(
            f"The plan of {manifest.model} fails its golden gate and was not kept: "
            f"{'; '.join(manifest.golden.faults)}. The report is in {failed}."
        )
    path = _beside(stem, ".plan")
    _write(path, plan)
    _write(_beside(stem, ".json"), manifest.as_json().encode())
    failed.unlink(missing_ok=True)
    return path


def _beside(stem: Path, ending: str) -> Path:
    """The stem holds dots, so that its own last part is no suffix."""
    return stem.with_name(stem.name + ending)


def _write(path: Path, content: bytes) -> None:
    with write_whole(path, len(content)) as file:
        file.write(content)


@contextmanager
def _alone(encoder: Encoder) -> Iterator[None]:
    """One build at a time in a version's folder. The system lets go of the lock however a build ends."""
    try:
        descriptor = os.open(encoder.folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as exc:
        raise EngineRefused(f"{encoder.folder} cannot be written: {exc.strerror}. Mount it writable to build.") from exc
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise EngineRefused(f"Another build of {encoder.model} {encoder.version} is running: wait for it.") from exc
        _clear(encoder.folder)
        yield
    finally:
        os.close(descriptor)


def _clear(folder: Path) -> None:
    """Remove what a killed build left half written; its names begin with a dot and end at random."""
    for left in folder.glob(".*_trt-*.plan.*"):
        with suppress(OSError):
            left.unlink()


def _room(encoder: Encoder) -> None:
    needed, free = _ROOM * encoder.onnx.stat().st_size, shutil.disk_usage(encoder.folder).free
    if free < needed:
        raise EngineRefused(
            f"{encoder.folder} has {free:,} bytes free, and a plan may take {needed:,}: make room before building."
        )


def _profiles(encoder: Encoder, options: Options) -> tuple[Profile, ...]:
    best = options.opt_batch
    if best is not None and not 1 <= best <= encoder.max_batch_size:
        raise EngineRefused(
            f"--opt-batch {best} lies outside 1 to {encoder.max_batch_size}, {encoder.model}'s batches."
        )
    return profiles_of(encoder.buckets, encoder.max_batch_size, best)


def _running(engine: Engine, profiles: Sequence[Profile]) -> Run:
    return lambda inputs: engine.run(profile_for(inputs["input_ids"].shape[1], profiles), inputs)


def _manifest(
    encoder: Encoder,
    onnx_sha256: str,
    machine: Machine,
    profiles: tuple[Profile, ...],
    options: Options,
    plan: bytes,
    build_s: float,
    report: GateReport,
    speeds: tuple[Speed, ...],
) -> Manifest:
    return Manifest(
        model=encoder.model,
        version=encoder.version,
        built_at=datetime.now(UTC).isoformat(timespec="seconds"),
        gpu=machine.gpus[0],
        tensorrt=machine.tensorrt,
        container=machine.container,
        driver=machine.driver,
        onnx_sha256=onnx_sha256,
        plan_sha256=hashlib.sha256(plan).hexdigest(),
        plan_bytes=len(plan),
        profiles=profiles,
        precision="tf32" if options.tf32 else "fp32",
        build_s=build_s,
        golden=report,
        speeds=speeds,
    )
