"""Which plan a machine may serve, and putting it where Triton looks: `model.plan`, which nobody else writes.

The variant `plan` names no file, so Triton opens `model.plan` and fails the model where there is none. It could choose
a file by compute capability (`cc_model_filenames`), but an H100 and an H200 have the same.
"""

import hashlib
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from zooserve.errors import EngineRefused
from zooserve.weights.disk import translated_disk_errors
from zooserve_ensembles.engines.encoder import Encoder
from zooserve_ensembles.engines.identity import Machine
from zooserve_ensembles.engines.manifest import BadManifest, Manifest, misfits, read_manifest

__all__ = ["SERVED", "Candidate", "candidates", "is_in_place", "placed", "refusal"]

SERVED = "model.plan"


@dataclass(frozen=True)
class Candidate:
    """A plan that lies in a version's folder, and why it must not be served here; none of them where it may."""

    plan: Path
    manifest: Manifest | None
    faults: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether this machine may serve it."""
        return not self.faults


def candidates(encoder: Encoder, machine: Machine) -> tuple[Candidate, ...]:
    """Every plan of the version, by name. A plan without a manifest, or another than its manifest's, fits nowhere."""
    digest = encoder.digest()
    plans = sorted(
        path for path in encoder.folder.glob("*.plan") if path.name != SERVED and not path.name.startswith(".")
    )
    return tuple(_candidate(plan, encoder, machine, digest) for plan in plans)


def placed(encoder: Encoder, machine: Machine) -> Candidate:
    """Make the plan that fits `model.plan`. Raises EngineRefused where none does; then no model.plan is left either."""
    found = candidates(encoder, machine)
    served = encoder.folder / SERVED
    for candidate in found:
        if candidate.fits:
            if not is_in_place(encoder, candidate):
                _place(candidate.plan, served)
            return candidate
    with translated_disk_errors(encoder.folder, 0):
        served.unlink(missing_ok=True)
    raise EngineRefused(refusal(encoder, found))


def is_in_place(encoder: Encoder, candidate: Candidate) -> bool:
    """Whether that plan is what Triton would load."""
    served = encoder.folder / SERVED
    if not served.is_file() or candidate.manifest is None:
        return False
    return served.samefile(candidate.plan) or _digest(served) == candidate.manifest.plan_sha256


def refusal(encoder: Encoder, found: Sequence[Candidate]) -> str:
    """Why no plan of the model may be served here, and what to do."""
    why = "; ".join(f"{candidate.plan.name}: {', '.join(candidate.faults)}" for candidate in found)
    return (
        f"{encoder.model} {encoder.version} has no plan for this machine ({why or 'none was built'}). Build one here: "
        f"python3 -m zooserve_ensembles.engines build {encoder.model} --repository {encoder.folder.parents[1]}"
    )


def _candidate(plan: Path, encoder: Encoder, machine: Machine, onnx_sha256: str) -> Candidate:
    file = plan.with_name(plan.name.removesuffix(".plan") + ".json")
    try:
        manifest = read_manifest(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Candidate(plan, None, (f"its manifest {file.name} is missing",))
    except (OSError, BadManifest, UnicodeDecodeError) as exc:
        return Candidate(plan, None, (f"its manifest {file.name} cannot be used: {exc}",))
    faults = misfits(manifest, machine, onnx_sha256)
    if manifest.model != encoder.model:
        faults.append(f"it is a plan of {manifest.model}")
    if not manifest.golden.passed:
        faults.append("it failed its golden gate")
    lengths = tuple(profile.length for profile in manifest.profiles)
    if lengths != encoder.buckets or any(profile.max_batch < encoder.max_batch_size for profile in manifest.profiles):
        faults.append("it was built for other buckets or smaller batches than the configuration's")
    if not faults and _digest(plan) != manifest.plan_sha256:
        faults.append("it is not the file that its manifest names: damaged, or half replaced")
    return Candidate(plan, manifest, tuple(faults))


def _place(plan: Path, served: Path) -> None:
    """In one step, sharing the plan's bytes where the file system allows it."""
    beside = served.with_name(f".{served.name}.{os.getpid()}")
    with translated_disk_errors(served.parent, plan.stat().st_size):
        try:
            beside.unlink(missing_ok=True)
            with suppress(OSError):
                beside.hardlink_to(plan)
            if not beside.exists():
                shutil.copyfile(plan, beside)
            beside.replace(served)
        finally:
            beside.unlink(missing_ok=True)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
