"""A family: pipelines that belong together, and the generated models that no pipeline has as a step."""

from collections.abc import Iterable
from dataclasses import dataclass

from zooserve_ensembles.member import Member
from zooserve_ensembles.pipeline import BadDefinition, Model, Pipeline

__all__ = ["Family", "generated_members", "written_models"]


@dataclass(frozen=True)
class Family:
    """What one module of `families` defines."""

    pipelines: tuple[Pipeline, ...] = ()
    members: tuple[Member, ...] = ()
    """Generated models that stand alone; those of the pipelines are found by their steps."""


def generated_members(families: Iterable[Family]) -> tuple[Member, ...]:
    """Every generated model once, in the order of its first use."""
    models = _models(families)
    return tuple(model for model in models.values() if isinstance(model, Member))


def written_models(families: Iterable[Family]) -> tuple[Model, ...]:
    """The contracts of the hand-written models that pipelines rely on."""
    models = _models(families)
    return tuple(model for model in models.values() if not isinstance(model, Member))


def _models(families: Iterable[Family]) -> dict[str, Model]:
    models: dict[str, Model] = {}
    for family in families:
        steps = (step.model for pipeline in family.pipelines for step in pipeline.steps)
        for model in (*steps, *family.members):
            if models.setdefault(model.name, model) != model:
                raise BadDefinition(f"{model.name} is defined twice, and not alike")
    return models
