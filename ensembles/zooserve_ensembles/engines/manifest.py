"""The manifest beside a plan: what it was built of, where, for which shapes, and how it did at the golden gate."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from zooserve_ensembles.engines.gate import GateReport
from zooserve_ensembles.engines.identity import Gpu, Machine
from zooserve_ensembles.engines.profiles import Profile
from zooserve_ensembles.engines.speeds import Speed

__all__ = ["BadManifest", "Manifest", "misfits", "read_manifest"]

_FORM = 1


class BadManifest(ValueError):
    """The text is no manifest of a plan."""


@dataclass(frozen=True)
class Manifest:
    """All that is known of one plan."""

    model: str
    version: str
    built_at: str
    """UTC, ISO 8601."""
    gpu: Gpu
    tensorrt: str
    container: str
    driver: str
    onnx_sha256: str
    plan_sha256: str
    plan_bytes: int
    profiles: tuple[Profile, ...]
    precision: str
    build_s: float
    golden: GateReport
    speeds: tuple[Speed, ...]

    def as_json(self) -> str:
        """The text of its file."""
        return json.dumps({"form": _FORM, **asdict(self)}, indent=1) + "\n"


def read_manifest(text: str) -> Manifest:
    """The manifest in a file's text. Raises BadManifest."""
    try:
        document: dict[str, Any] = json.loads(text)
        if document.pop("form") != _FORM:
            raise BadManifest("it is of a form that this version does not know")
        made: Mapping[str, Any] = {
            **document,
            "gpu": Gpu(**document["gpu"]),
            "profiles": tuple(Profile(**profile) for profile in document["profiles"]),
            "golden": GateReport(**{**document["golden"], "faults": tuple(document["golden"]["faults"])}),
            "speeds": tuple(Speed(**speed) for speed in document["speeds"]),
        }
        return Manifest(**made)
    except (AttributeError, KeyError, TypeError, json.JSONDecodeError) as exc:
        raise BadManifest("it is no manifest of a plan") from exc


def misfits(manifest: Manifest, machine: Machine, onnx_sha256: str) -> list[str]:
    """Why a plan must not be served by this machine for this graph, one clause each; empty where it may."""
    return [
        *_gpu_misfits(manifest.gpu, machine.gpus),
        *_differs("TensorRT", manifest.tensorrt, machine.tensorrt),
        *_differs("container", manifest.container, machine.container),
        *(["it was built of another model.onnx"] if manifest.onnx_sha256 != onnx_sha256 else []),
    ]


def _gpu_misfits(gpu: Gpu, here: Sequence[Gpu]) -> list[str]:
    if not here:
        return ["there is no GPU here"]
    others = sorted({other.name for other in here if other != gpu})
    return [f"it was built on {gpu.name}, and here is {' and '.join(others)}"] if others else []


def _differs(what: str, built: str, here: str) -> list[str]:
    return [f"it was built with {what} {built}, and here is {here or 'none'}"] if built != here else []
