"""Rules of ONNX models: what the configuration declares is what the file has, as Triton's backend compares them."""

from collections.abc import Iterator, Sequence

from zooserve_ensembles.checking.findings import Finding, Place, Rule, Severity
from zooserve_ensembles.checking.onnx_file import Graph, OnnxTensor
from zooserve_ensembles.checking.reading import did_you_mean
from zooserve_ensembles.checking.repository import Config, Model, Repository, dtype_name, fitting

__all__ = ["RULES", "graph_findings"]

TENSOR = Rule(
    "onnx-tensor", Severity.ERROR, "The configuration declares a tensor that the ONNX file lacks, or leaves one out"
)
DTYPE = Rule("onnx-dtype", Severity.ERROR, "The configuration's type of a tensor is not the ONNX file's")
SHAPE = Rule("onnx-shape", Severity.ERROR, "The configuration's shape of a tensor is not the ONNX file's")
BATCH = Rule("onnx-batch", Severity.ERROR, "The configuration batches, but the file's first size is fixed")

RULES = (TENSOR, DTYPE, SHAPE, BATCH)


def graph_findings(repository: Repository) -> Iterator[Finding]:
    """Every served version of every ONNX model."""
    for model in repository.stages:
        for version in model.served:
            graph = model.graph(version)
            if graph is not None:
                yield from _left_out(model, version, graph)
                yield from _declared(model, version, "input", graph.inputs)
                yield from _declared(model, version, "output", graph.outputs)


def _left_out(model: Model, version: int, graph: Graph) -> Iterator[Finding]:
    config = model.config
    if not config.input:
        return  # Triton completes them
    given = {tensor.name for tensor in config.input} | _fed_by_triton(config)
    for tensor in graph.inputs:
        if tensor.name not in given:
            yield TENSOR.at(
                model.source.place(("input", 0)),
                f"{_file(model, version)} needs an input {tensor.name}, which is not declared: add it",
            )


def _fed_by_triton(config: Config) -> set[str]:
    sequence = config.sequence_batching
    return {
        *(name for batch_input in config.batch_input for name in batch_input.target_name),
        *(control.name for control in sequence.control_input),
        *(state.input_name for state in sequence.state),
    }


def _declared(model: Model, version: int, side: str, found: Sequence[OnnxTensor]) -> Iterator[Finding]:
    for index, entry in enumerate(getattr(model.config, side)):
        tensor = next((each for each in found if each.name == entry.name), None)

        def place(field: str, index: int = index) -> Place:
            return model.source.place((side, index), field)

        if tensor is None:
            hint = did_you_mean(entry.name, [each.name for each in found])
            yield TENSOR.at(place("name"), f"{_file(model, version)} has no {side} {entry.name}. {hint}".strip())
            continue
        if tensor.dtype and tensor.dtype != dtype_name(entry.data_type):
            yield DTYPE.at(
                place("data_type"),
                f"{side} {entry.name} is {dtype_name(entry.data_type)}, but {_file(model, version)} has "
                f"{tensor.dtype}: write TYPE_{tensor.dtype}",
            )
        if tensor.dims is not None:
            yield from _shape(model, version, f"{side} {entry.name}", place("dims"), entry, tensor.dims)


def _shape(
    model: Model, version: int, called: str, at: Place, entry: Config, found: tuple[int, ...]
) -> Iterator[Finding]:
    declared = tuple(entry.reshape.shape) if entry.HasField("reshape") else tuple(entry.dims)
    if not model.batched:
        if not fitting(declared, found):
            hint = (
                ": the first size is the batch, write max_batch_size above 0 or add it to dims"
                if fitting(declared, found[1:])
                else ""
            )
            yield SHAPE.at(at, f"{called} is {list(declared)}, but {_file(model, version)} has {list(found)}{hint}")
        return
    if found[:1] != (-1,):
        yield BATCH.at(
            at,
            f"max_batch_size is {model.config.max_batch_size}, but {called} of {_file(model, version)} is "
            f"{list(found)}: its first size is fixed. Export it with an open one, or set max_batch_size: 0 and write "
            "the whole shape in dims",
        )
    elif not fitting(declared, found[1:]):
        hint = ": dims must leave the batch out" if fitting(declared, found) else ""
        yield SHAPE.at(
            at, f"{called} is {list(declared)}, but {_file(model, version)} has {list(found[1:])} after the batch{hint}"
        )


def _file(model: Model, version: int) -> str:
    return f"{model.name}/{version}/{model.weights or 'model.onnx'}"
