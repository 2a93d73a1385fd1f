"""Rules of a single configuration: its name, its tensors, its instances, the contract of its variants."""

from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path

from zooserve_ensembles.checking.findings import Finding, Rule, Severity
from zooserve_ensembles.checking.repository import Config, Model, Repository, Source, dtype_name, is_file

__all__ = ["RULES", "config_findings"]

NAME = Rule("name-mismatch", Severity.ERROR, "The configuration's name is not its folder's")
DUPLICATE = Rule("duplicate-tensor", Severity.ERROR, "Two inputs, or two outputs, have the same name")
TENSOR = Rule(
    "tensor-incomplete", Severity.ERROR, "A tensor lacks its name, type or dims, or has a size Triton refuses"
)
RESHAPE = Rule("reshape-mismatch", Severity.ERROR, "A reshape has another number of elements than dims")
LABELS = Rule("labels-missing", Severity.ERROR, "label_filename names a file that is not there")
VARIANT = Rule(
    "variant-contract", Severity.ERROR, "A hardware variant has another name or other tensors than config.pbtxt"
)

RULES = (NAME, DUPLICATE, TENSOR, RESHAPE, LABELS, VARIANT)


def config_findings(repository: Repository) -> Iterator[Finding]:
    """Each configuration by itself, and each variant against its configuration."""
    for model in repository.models.values():
        if not model.has_config:
            continue
        yield from _config(model, model.config, model.source, repository)
        for variant in model.variants:
            yield from _config(model, variant.config, variant.source, repository)
            for side in ("input", "output"):
                yield from _variant(model, variant.config, variant.source, side)


def _config(model: Model, config: Config, source: Source, repository: Repository) -> Iterator[Finding]:
    if config.name and config.name != model.name:
        yield NAME.at(
            source.place("name"),
            f'the configuration says name: "{config.name}", but its folder is called {model.name}: make them the same',
        )
    for side in ("input", "output"):
        seen: set[str] = set()
        for index, tensor in enumerate(getattr(config, side)):
            if tensor.name in seen:
                yield DUPLICATE.at(source.place((side, index), "name"), f"{side} {tensor.name} is declared twice")
            seen.add(tensor.name)
            yield from _tensor(source, side, index, tensor)
            labels = getattr(tensor, "label_filename", "")
            if labels and not is_file(model.folder / labels) and Path(model.name, labels) not in repository.fetched:
                yield LABELS.at(
                    source.place((side, index), "label_filename"),
                    f"{model.name}/{labels} is not there, and Triton refuses the model without it",
                )


def _tensor(source: Source, side: str, index: int, tensor: Config) -> Iterator[Finding]:
    called = f"{side} {tensor.name or index + 1}"
    at = source.place((side, index), "name")
    if not tensor.name:
        yield TENSOR.at(at, f"{called} has no name: add it")
    if not tensor.data_type:
        yield TENSOR.at(at, f"{called} has no data_type: add one, such as TYPE_FP32")
    elif dtype_name(tensor.data_type).isdecimal():
        yield TENSOR.at(
            source.place((side, index), "data_type"),
            f"{called} has data_type {tensor.data_type}, which stands for no type: write its name, such as TYPE_FP32",
        )
    if not tensor.dims:
        yield TENSOR.at(at, f"{called} has no dims: add them without the batch, such as dims: [ 1 ]")
    for place, size in enumerate(tensor.dims):
        if size < 1 and size != -1:
            yield TENSOR.at(
                source.place((side, index), ("dims", place)),
                f"{called} has a size of {size}: 1 or more, or -1 if it varies",
            )
    if tensor.HasField("reshape") and -1 not in (*tensor.dims, *tensor.reshape.shape):
        before, after = list(tensor.dims), list(tensor.reshape.shape)
        if prod(before) != prod(after):
            yield RESHAPE.at(
                source.place((side, index), "reshape"),
                f"{called} is reshaped from {before} to {after}, which holds another number of elements",
            )


def _variant(model: Model, variant: Config, source: Source, side: str) -> Iterator[Finding]:
    declared = {tensor.name: _kind(tensor) for tensor in getattr(model.config, side)}
    other = {tensor.name: _kind(tensor) for tensor in getattr(variant, side)}
    if not declared or not other:
        return  # completed from the weights' file
    for index, tensor in enumerate(getattr(variant, side)):
        if tensor.name in declared and declared[tensor.name] != _kind(tensor):
            yield VARIANT.at(
                source.place((side, index), "name"),
                f"{side} {tensor.name} is {_kind(tensor)} here, but {declared[tensor.name]} in config.pbtxt: callers "
                "must not see which hardware serves them",
            )
    lost, added = _only(declared, other), _only(other, declared)
    if lost or added:
        told = [f"has no {side} {name}" for name in lost] + [f"adds {side} {name}" for name in added]
        yield VARIANT.at(source.place((side, 0)), f"this variant {' and '.join(told)}, unlike config.pbtxt")


def _only(these: dict[str, str], those: dict[str, str]) -> Sequence[str]:
    return sorted(these.keys() - those.keys())


def _kind(tensor: Config) -> str:
    return f"{dtype_name(tensor.data_type)} {list(tensor.dims)}"
