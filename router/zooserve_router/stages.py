"""What the zoo's ensembles consist of: read once from the repository, so that a failure can be told by its stage."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from zooserve.triton.configs import ModelConfig, read_configs

__all__ = ["Ensemble", "Stage", "Step", "load_ensembles"]

_NEWEST = -1
_ANY_VERSION = ""


@dataclass(frozen=True)
class Stage:
    """A Triton model at its place in an ensemble. An empty version is one that the configuration leaves open."""

    model: str
    version: str = _ANY_VERSION

    def __str__(self) -> str:
        return f"{self.model} version {self.version}" if self.version else self.model

    @property
    def label(self) -> str:
        """For headers and metrics: `embed_encoder/1`."""
        return f"{self.model}/{self.version}" if self.version else self.model


@dataclass(frozen=True)
class Step:
    """One step: its stage, and the ensemble's edges that it takes and gives, by the model's own tensor names."""

    stage: Stage
    takes: Mapping[str, str] = field(default_factory=dict)
    gives: Mapping[str, str] = field(default_factory=dict)
    bounded: bool = False
    """Whether its queue has a bound, and may be full."""


@dataclass(frozen=True)
class Ensemble:
    """A Triton model that is asked; one that is no ensemble has itself as its only step."""

    name: str
    steps: tuple[Step, ...]

    @classmethod
    def single(cls, name: str) -> "Ensemble":
        """A model about which nothing is known but its name."""
        return cls(name, (Step(Stage(name), bounded=True),))

    def step_of(self, model: str) -> Step | None:
        """The step that this model runs."""
        return next((step for step in self.steps if step.stage.model == model), None)

    def maker_of(self, edge: str) -> Step | None:
        """The step that gives this edge; None for an input of the ensemble."""
        return next((step for step in self.steps if edge in step.gives.values()), None)

    def followers_of(self, step: Step) -> list[Step]:
        """The steps that take what this one gives."""
        given = set(step.gives.values())
        return [other for other in self.steps if given & set(other.takes.values())]


def load_ensembles(repository: Path) -> dict[str, Ensemble]:
    """Every model of a Triton repository whose configuration can be read."""
    configs = read_configs(repository)
    return {name: Ensemble(name, _steps(repository, name, configs)) for name in configs}


def _steps(repository: Path, name: str, configs: Mapping[str, ModelConfig]) -> tuple[Step, ...]:
    scheduled = configs[name].ensemble_scheduling.step
    if not scheduled:
        return (Step(Stage(name, _only_version(repository / name)), bounded=_is_bounded(configs, name)),)
    return tuple(
        Step(
            Stage(step.model_name, _pinned(repository / step.model_name, step.model_version)),
            dict(step.input_map),
            dict(step.output_map),
            _is_bounded(configs, step.model_name),
        )
        for step in scheduled
    )


def _pinned(folder: Path, version: int) -> str:
    return _only_version(folder) if version == _NEWEST else str(version)


def _only_version(folder: Path) -> str:
    versions = [entry.name for entry in folder.glob("*") if entry.name.isdecimal()]
    return versions[0] if len(versions) == 1 else _ANY_VERSION


def _is_bounded(configs: Mapping[str, ModelConfig], name: str) -> bool:
    if name not in configs:
        return True  # nothing is known of it
    return bool(configs[name].dynamic_batching.default_queue_policy.max_queue_size)
