"""Rules of warm-up samples: Triton runs them at load, and a sample it cannot run stops the model."""

from collections.abc import Iterator
from math import prod
from pathlib import Path

from zooserve_ensembles.checking.findings import Finding, Place, Rule, Severity
from zooserve_ensembles.checking.reading import did_you_mean
from zooserve_ensembles.checking.repository import (
    Config,
    Model,
    Repository,
    Source,
    Tensor,
    dtype_name,
    fitting,
    is_file,
)

__all__ = ["RULES", "warmup_findings"]

INPUTS = Rule("warmup-inputs", Severity.ERROR, "A sample names an input that the model lacks, or leaves one out")
KIND = Rule("warmup-kind", Severity.ERROR, "A sample's type, shape or batch is not the model's, or it has no data")
DATA = Rule(
    "warmup-data", Severity.ERROR, "A sample's data file is missing, or holds another number of bytes or strings"
)

RULES = (INPUTS, KIND, DATA)

_BYTES = {
    "BOOL": 1,
    "UINT8": 1,
    "INT8": 1,
    "UINT16": 2,
    "INT16": 2,
    "FP16": 2,
    "BF16": 2,
    "UINT32": 4,
    "INT32": 4,
    "FP32": 4,
    "UINT64": 8,
    "INT64": 8,
    "FP64": 8,
}


def warmup_findings(repository: Repository) -> Iterator[Finding]:
    """Every sample of every model and of its variants."""
    for model in repository.stages:
        for config, source in ((model.config, model.source), *((each.config, each.source) for each in model.variants)):
            for index, sample in enumerate(config.model_warmup):
                yield from _sample(model, config, source, index, sample)


def _sample(model: Model, config: Config, source: Source, index: int, sample: Config) -> Iterator[Finding]:
    at = source.place(("model_warmup", index), "name")
    called = f"warm-up {sample.name or index + 1}"
    if sample.batch_size > max(config.max_batch_size, 1):
        yield KIND.at(
            source.place(("model_warmup", index), "batch_size"),
            f"{called} has batch_size {sample.batch_size}, but max_batch_size is {config.max_batch_size}",
        )
    contract = model.inputs
    for name in sorted(sample.inputs, key=lambda name: source.place(("model_warmup", index), ("inputs", name))):
        where = source.place(("model_warmup", index), ("inputs", name))
        tensor = contract.tensors.get(name)
        if tensor is None and not contract.open and name not in _controls(config):
            yield INPUTS.at(
                where, f"{called} feeds {name}, which is no input. {did_you_mean(name, list(contract.tensors))}".strip()
            )
        yield from _input(model, source, (index, name), called, sample.inputs[name], tensor)
    left = [name for name, tensor in contract.tensors.items() if name not in sample.inputs and not tensor.optional]
    if left and not contract.open:
        yield INPUTS.at(at, f"{called} leaves out {', '.join(left)}: Triton refuses the model for it")


def _controls(config: Config) -> set[str]:
    sequence = config.sequence_batching
    return {control.name for control in sequence.control_input} | {state.input_name for state in sequence.state}


def _input(
    model: Model, source: Source, path: tuple[int, str], called: str, given: Config, tensor: Tensor | None
) -> Iterator[Finding]:
    def place(field: str) -> Place:
        return source.place(("model_warmup", path[0]), ("inputs", path[1]), "value", field)

    dtype, dims = dtype_name(given.data_type), tuple(given.dims)
    if any(size < 0 for size in dims):
        yield KIND.at(place("dims"), f"{called} has an open size in {list(dims)}: a sample's sizes are all given")
        return
    if tensor is not None and tensor.dtype != dtype:
        yield KIND.at(place("data_type"), f"{called} feeds {path[1]} as {dtype}, but it is {tensor.dtype}")
    if tensor is not None and tensor.dims is not None and not fitting(tensor.dims, dims):
        yield KIND.at(place("dims"), f"{called} feeds {path[1]} as {list(dims)}, but it is {list(tensor.dims)}")
    if not given.WhichOneof("input_data_type"):
        yield KIND.at(
            place("data_type"),
            f"{called} gives {path[1]} no data: add zero_data: true, random_data: true or input_data_file",
        )
    if given.input_data_file:
        yield from _file(model, place("input_data_file"), called, given.input_data_file, dtype, prod(dims))


def _file(model: Model, at: Place, called: str, name: str, dtype: str, elements: int) -> Iterator[Finding]:
    file = model.folder / "warmup" / name
    shown = f"{model.name}/warmup/{name}"
    if not is_file(file):
        yield DATA.at(at, f"{called} reads {shown}, which is not there")
    elif dtype == "STRING":
        if fault := _strings_fault(file, elements):
            yield DATA.at(at, f"{called} reads {shown}: {fault}")
    elif dtype in _BYTES and file.stat().st_size != elements * _BYTES[dtype]:
        size, wanted = file.stat().st_size, elements * _BYTES[dtype]
        yield DATA.at(
            at,
            f"{called} reads {shown}, which has {size} bytes, but one row of {elements} {dtype} is {wanted}",
            Severity.ERROR if size < wanted else Severity.WARNING,
        )


def _strings_fault(file: Path, elements: int) -> str:
    """Strings come as their length in four bytes, little end first, then their bytes."""
    content, found = file.read_bytes(), 0
    while content:
        length = int.from_bytes(content[:4], "little")
        if len(content) < 4 + length:
            return "each string must follow its length, 4 bytes with the low one first, and this one is cut off"
        content, found = content[4 + length :], found + 1
    return "" if found == elements else f"it has {found} strings, but a row has {elements}"
