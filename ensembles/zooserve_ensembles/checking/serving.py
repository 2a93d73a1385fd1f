"""Rules of what runs a model: its backend, and the instances of it."""

from collections.abc import Iterator
from difflib import get_close_matches

from zooserve_ensembles.backends import BACKENDS, PLATFORMS
from zooserve_ensembles.checking.findings import Finding, Rule, Severity
from zooserve_ensembles.checking.repository import Model, Repository, Target

__all__ = ["RULES", "serving_findings"]

MISSING = Rule("backend-missing", Severity.ERROR, "Neither backend nor platform is given, and no file tells it")
UNKNOWN = Rule("backend-unknown", Severity.ERROR, "A platform that Triton does not know, or a backend misspelt")
OWN = Rule("backend-own", Severity.NOTE, "A backend that Triton does not bring: its folder must be installed")
CONTRADICTION = Rule("backend-contradiction", Severity.WARNING, "platform and backend name different backends")
NOT_EMBEDDED = Rule(
    "backend-not-embedded",
    Severity.NOTE,
    "The embedded Triton cannot run this backend, NVIDIA's container can; an error with --target embedded",
)
GPU = Rule(
    "instance-needs-gpu", Severity.WARNING, "KIND_GPU on the embedded Triton: without a GPU the model does not load"
)
TWO_INSTANCES = Rule(
    "instance-count",
    Severity.WARNING,
    "An ONNX model without a count gets two instances on the CPU of the embedded Triton, each with all threads",
)
TOO_NEW = Rule(
    "field-too-new",
    Severity.NOTE,
    "The embedded Triton 2.51 does not know this field, and refuses the configuration; an error with --target embedded",
)
KIND = Rule("instance-kind", Severity.ERROR, "An instance's kind is a number that stands for nothing")
GPUS_ON_CPU = Rule("instance-contradiction", Severity.ERROR, "KIND_CPU with a list of gpus")

RULES = (MISSING, UNKNOWN, OWN, CONTRADICTION, NOT_EMBEDDED, GPU, TWO_INSTANCES, KIND, GPUS_ON_CPU, TOO_NEW)

# All that the client's protobuf has and the one inside the 2.51 binary has not.
_NEWER = (("model_metrics",), ("ensemble_scheduling", "max_inflight_requests"))


def serving_findings(repository: Repository) -> Iterator[Finding]:
    """The backend and the instances of every model that runs by itself."""
    for model in repository.models.values():
        yield from _too_new(model, repository.target)
    for model in repository.stages:
        yield from _backend(model, repository.target)
        yield from _instances(model, repository)


def _too_new(model: Model, target: Target | None) -> Iterator[Finding]:
    for source in (model.source, *(variant.source for variant in model.variants)):
        for path in _NEWER:
            if target is not Target.CONTAINER and source.block.has(path):
                yield TOO_NEW.at(
                    source.place(*path),
                    f"Triton 2.51 has no {path[-1]}: remove it, or serve the model with a newer container",
                    Severity.ERROR if target is Target.EMBEDDED else None,
                )


def _backend(model: Model, target: Target | None) -> Iterator[Finding]:
    config, source = model.config, model.source
    if config.platform and config.platform not in PLATFORMS and not config.backend:
        meant = config.platform if config.platform in BACKENDS else _near(config.platform)
        advice = f'write backend: "{meant}" instead' if meant else "name the backend in the field backend"
        yield UNKNOWN.at(source.place("platform"), f'Triton knows no platform "{config.platform}": {advice}')
    elif model.backend:
        yield from _named(model, target)
    elif model.versions:
        # Without any file this may be a clone whose weights are still to come.
        empty = not any(model.files(version) for version in model.versions)
        yield MISSING.at(
            source.place("name"),
            f'nothing tells what runs {model.name}: add one, such as backend: "onnxruntime" or backend: "python"',
            Severity.WARNING if empty else None,
        )


def _named(model: Model, target: Target | None) -> Iterator[Finding]:
    config, source = model.config, model.source
    if config.platform in PLATFORMS and config.backend and PLATFORMS[config.platform] != config.backend:
        yield CONTRADICTION.at(
            source.place("backend"),
            f'backend: "{config.backend}" holds, and platform: "{config.platform}" does not: remove it',
        )
    known = BACKENDS.get(model.backend)
    at = source.place("backend" if config.backend else "platform")
    if known is None and (near := _near(model.backend)):
        yield UNKNOWN.at(at, f'there is no backend "{model.backend}". Did you mean {near}?')
    elif known is None:
        yield OWN.at(at, f'"{model.backend}" is none of Triton\'s backends: install a folder of that name beside them')
    elif not known.embedded and target is not Target.CONTAINER:
        yield NOT_EMBEDDED.at(
            at,
            f"the embedded Triton cannot run backend {known.name} ({known.serves}): {known.advice}",
            Severity.ERROR if target is Target.EMBEDDED else None,
        )


def _near(name: str) -> str:
    return next(iter(get_close_matches(name, list(BACKENDS), 1, 0.75)), "")


def _instances(model: Model, repository: Repository) -> Iterator[Finding]:
    embedded = repository.target is Target.EMBEDDED
    for index, group in enumerate(model.config.instance_group):
        place = model.source.place(("instance_group", index), "kind")
        if group.kind not in type(group).Kind.values():
            yield KIND.at(place, f"kind {group.kind} stands for nothing: write its name, such as KIND_CPU")
        if group.kind == type(group).KIND_GPU and embedded:
            yield GPU.at(
                place,
                "KIND_GPU does not load without a GPU: put it into configs/gpu.pbtxt (--model-config-name=gpu)",
            )
        if group.kind == type(group).KIND_CPU and group.gpus:
            yield GPUS_ON_CPU.at(
                model.source.place(("instance_group", index), "gpus"), "KIND_CPU runs on no gpus: remove one of the two"
            )
    counted = [group for group in model.config.instance_group if group.count]
    if embedded and model.backend == "onnxruntime" and not counted:
        yield TWO_INSTANCES.at(
            model.source.place("instance_group"),
            f"without a count {model.name} gets two instances on CPU, which share its cores: "
            "instance_group [ { kind: KIND_CPU count: 1 } ]",
        )
