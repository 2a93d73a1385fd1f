"""Rules of what a configuration asks of the hardware: accelerators, the native backends' parameters, variants.

They are about NVIDIA's container; what its backends read is recorded in `recorded/native_backends.yaml`.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from ruamel.yaml import YAML

from zooserve_ensembles.checking.findings import Finding, Rule, Severity
from zooserve_ensembles.checking.repository import Config, Model, Repository, Source, Target

__all__ = ["RULES", "hardware_findings", "native_backends"]

ACCELERATOR = Rule(
    "accelerator-unknown", Severity.ERROR, "ONNX Runtime's backend has no execution accelerator of this name"
)
SETTING = Rule(
    "accelerator-parameter", Severity.ERROR, "An execution accelerator has no such parameter, or takes no such value"
)
REPLACED = Rule(
    "accelerator-replaced",
    Severity.WARNING,
    'The native backend replaces this parameter of the accelerator "cuda" by that of the model, or by its default',
)
VALUE = Rule("backend-parameter", Severity.ERROR, "A parameter of the model has a value that its backend does not take")
RAGGED = Rule(
    "ragged-native",
    Severity.NOTE,
    "ONNX Runtime's native backend refuses an input with allow_ragged_batch; an error with --target container",
)
MISSING = Rule(
    "variant-missing",
    Severity.ERROR,
    "A model lacks a variant that others have, and its config.pbtxt is not for the native backend",
)
PROFILE = Rule("instance-profile", Severity.ERROR, "An optimization profile of a TensorRT engine is told by its number")

RULES = (ACCELERATOR, SETTING, REPLACED, VALUE, RAGGED, MISSING, PROFILE)

_ACCELERATORS = ("optimization", "execution_accelerators")


@cache
def native_backends() -> Mapping[str, Any]:
    """The record: by backend what it reads, with its sources."""
    record: Mapping[str, Any] = YAML(typ="safe").load(
        files("zooserve_ensembles.checking").joinpath("recorded/native_backends.yaml").read_text(encoding="utf-8")
    )
    return record


def hardware_findings(repository: Repository) -> Iterator[Finding]:
    """Every configuration and variant by itself, then the variants that a model lacks."""
    names = sorted({variant.source.file.stem for model in repository.models.values() for variant in model.variants})
    for model in repository.stages:
        yield from _configuration(model.config, model.backend, model.source)
        for variant in model.variants:
            yield from _configuration(variant.config, variant.config.backend or model.backend, variant.source)
            yield from _ragged(variant.config, variant.config.backend or model.backend, variant.source, repository)
        if not names:
            yield from _ragged(model.config, model.backend, model.source, repository)
        yield from _lacking(model, names, repository)


def _configuration(config: Config, backend: str, source: Source) -> Iterator[Finding]:
    if backend == "onnxruntime":
        yield from _accelerators(config, source)
    if backend in ("onnxruntime", "tensorrt"):
        yield from _parameters(config, native_backends()[backend]["parameters"], source)
    for index, group in enumerate(config.instance_group):
        for place, profile in enumerate(group.profile):
            if not profile.isdecimal():
                yield PROFILE.at(
                    source.place(("instance_group", index), ("profile", place)),
                    f'profile "{profile}" is no number: 0 is the first that the engine was built with',
                )


def _accelerators(config: Config, source: Source) -> Iterator[Finding]:
    record = native_backends()["onnxruntime"]
    for side in ("gpu", "cpu"):
        field = f"{side}_execution_accelerator"
        for index, entry in enumerate(getattr(config.optimization.execution_accelerators, field)):
            path = (*_ACCELERATORS, (field, index))
            if entry.name not in record[side]:
                known = " or ".join(f'"{name}"' for name in record[side])
                yield ACCELERATOR.at(source.place(*path, "name"), f'"{entry.name}" is no {field}: {known} is')
                continue
            for key, value in sorted(entry.parameters.items()):
                at = source.place(*path, ("parameters", key))
                if key not in record[side][entry.name]:
                    yield SETTING.at(at, f'"{entry.name}" has no parameter {key}: the backend refuses the model')
                elif key == "precision_mode" and value not in record["precision_mode"]:
                    modes = ", ".join(record["precision_mode"])
                    yield SETTING.at(at, f'precision_mode "{value}" is none of {modes}')
                elif entry.name == "cuda" and key in record["replaced"]:
                    yield REPLACED.at(
                        at,
                        f"{key} has no effect here in NVIDIA's container: say it among the model's parameters, as "
                        f'parameters {{ key: "{key}" value {{ string_value: "…" }} }}',
                    )


def _parameters(config: Config, known: Mapping[str, str], source: Source) -> Iterator[Finding]:
    for key, value in sorted(config.parameters.items()):
        if key in known and not re.fullmatch(known[key], value.string_value):
            yield VALUE.at(
                source.place(("parameters", key)),
                f'{key} is "{value.string_value}", and must look like {known[key]}',
            )


def _ragged(config: Config, backend: str, source: Source, repository: Repository) -> Iterator[Finding]:
    if repository.target is Target.EMBEDDED and not repository.is_house:
        return
    for_container = repository.target is Target.CONTAINER
    for index in _ragged_inputs(config, backend):
        yield RAGGED.at(
            source.place(("input", index), "allow_ragged_batch"),
            f"the native backend refuses {config.input[index].name}: it takes a ragged input only where the graph's "
            "is a row of open length, with batch_input telling the lengths",
            Severity.ERROR if for_container else None,
        )


def _lacking(model: Model, names: list[str], repository: Repository) -> Iterator[Finding]:
    """Triton takes config.pbtxt where a model has no variant of that name."""
    ragged = _ragged_inputs(model.config, model.backend)
    if not ragged:
        return
    lacking = sorted(set(names) - {variant.source.file.stem for variant in model.variants})
    strict = repository.is_house or repository.target is Target.CONTAINER
    for name in lacking:
        yield MISSING.at(
            model.source.place(("input", ragged[0]), "allow_ragged_batch"),
            f"with --model-config-name={name} Triton takes this file, whose ragged inputs the native backend refuses: "
            f"add configs/{name}.pbtxt",
            None if strict else Severity.NOTE,
        )


def _ragged_inputs(config: Config, backend: str) -> list[int]:
    if backend != "onnxruntime" or config.batch_input:
        return []
    return [index for index, tensor in enumerate(config.input) if tensor.allow_ragged_batch]
