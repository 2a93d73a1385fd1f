"""What a plan belongs to: a GPU, a TensorRT and a container; and the name of its file, which says all three."""

import re
from dataclasses import dataclass

__all__ = ["NO_CONTAINER", "Gpu", "Machine", "plan_stem"]

NO_CONTAINER = "no-container"
"""Stands for the tag where the build ran in none that says it."""


@dataclass(frozen=True)
class Gpu:
    """A GPU by the name that its driver gives: H100 and H200 have one compute capability, and plans of their own."""

    name: str
    compute_capability: str


@dataclass(frozen=True)
class Machine:
    """Where a plan is built or to be served. `gpus` are those that CUDA shows, the first is built on."""

    gpus: tuple[Gpu, ...]
    tensorrt: str
    container: str
    driver: str


def plan_stem(machine: Machine) -> str:
    """The name of the machine's plans, without an ending: `nvidia-h200_trt-10.14.1.48_26.02`."""
    return f"{_slug(machine.gpus[0].name)}_trt-{_slug(machine.tensorrt)}_{_slug(machine.container)}"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")
