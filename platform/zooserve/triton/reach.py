"""Which Triton models of a repository have to run for the enabled public models."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from zooserve.catalogue import Catalogue, Model
from zooserve.triton.configs import read_configs

__all__ = ["reached_models", "unwanted_models", "wanted_models"]

Steps = Mapping[str, tuple[str, ...]]


def wanted_models(repository: Path, catalogue: Catalogue) -> list[str]:
    """The folders of `repository` to load: all but those that only models which are not enabled reach.

    So what no public model claims runs too, such as a stage that is called from another stage's code.
    """
    if not repository.is_dir():
        return []
    unwanted = unwanted_models(repository, catalogue)
    folders = (folder.name for folder in repository.iterdir() if folder.is_dir() and not folder.name.startswith("."))
    return sorted(name for name in folders if name not in unwanted)


def unwanted_models(repository: Path, catalogue: Catalogue) -> set[str]:
    """The Triton models that only models which are not enabled reach, by themselves or through ensembles."""
    if not catalogue.disabled:
        return set()
    steps = _steps(repository)
    return _reached(catalogue.disabled, steps) - _reached(catalogue.models, steps)


def reached_models(repository: Path, models: Iterable[Model]) -> dict[str, set[str]]:
    """The Triton models that each of these runs on, by itself or through ensembles, by its public name."""
    steps = _steps(repository)
    return {model.name: _reached([model], steps) for model in models}


def _reached(models: Iterable[Model], steps: Steps) -> set[str]:
    reached: set[str] = set()
    ahead = [name for model in models for name in model.triton_models()]
    while ahead:
        name = ahead.pop()
        if name not in reached:
            reached.add(name)
            ahead += steps.get(name, ())
    return reached


def _steps(repository: Path) -> Steps:
    """The steps of every ensemble; a configuration that cannot be read has none here."""
    return {
        name: tuple(step.model_name for step in config.ensemble_scheduling.step)
        for name, config in read_configs(repository).items()
    }
