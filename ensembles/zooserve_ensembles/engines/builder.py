"""The seam to TensorRT: what a build asks of it, and nothing more."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

from zooserve_ensembles.engines.profiles import Profile

__all__ = ["Builder", "Engine", "Order"]


@dataclass(frozen=True)
class Order:
    """What is to be built: a graph, the inputs that the profiles shape, the outputs to keep, and how exact."""

    graph: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    profiles: Sequence[Profile]
    tf32: bool
    workspace_bytes: int


class Engine(Protocol):
    """A plan that is loaded."""

    def run(self, profile: int, inputs: Mapping[str, npt.NDArray[Any]]) -> Mapping[str, npt.NDArray[Any]]:
        """One batch through that profile; the outputs by name."""
        ...


class Builder(Protocol):
    """Makes plans and loads them. Both raise EngineRefused, saying what was wrong in TensorRT's own words."""

    @property
    def version(self) -> str:
        """TensorRT's version, with its build."""
        ...

    def build(self, order: Order) -> bytes:
        """The plan."""
        ...

    def loaded(self, plan: bytes) -> AbstractContextManager[Engine]:
        """The plan on this machine's first GPU."""
        ...
