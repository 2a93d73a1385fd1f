"""A pipeline as a typed definition: models with their tensors, and the edges between them, checked when it is made.

What is rendered from it stands in `rendering`, the zoo's own pipelines in `families`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter

from zooserve.catalogue import SloClass

__all__ = [
    "MAX_ROWS",
    "BadDefinition",
    "Dtype",
    "Edges",
    "Model",
    "Pipeline",
    "Step",
    "Tensor",
    "edges",
]

MAX_ROWS = 64
"""Rows of one batch, everywhere in the zoo: an ensemble's limit may not exceed any of its members'."""

Edges = Mapping[str, str]
"""A model's tensor to the edge of the pipeline that it takes or gives."""


class BadDefinition(ValueError):
    """A definition cannot be right; the message names every fault."""


class Dtype(StrEnum):
    """Element types as Triton's configuration calls them, without its prefix."""

    BOOL = "BOOL"
    UINT8 = "UINT8"
    INT32 = "INT32"
    INT64 = "INT64"
    FP16 = "FP16"
    FP32 = "FP32"
    STRING = "STRING"


@dataclass(frozen=True)
class Tensor:
    """One row of a tensor: its shape is without the batch, -1 where it varies from request to request."""

    name: str
    dtype: Dtype
    dims: tuple[int, ...]

    @property
    def kind(self) -> str:
        """Type and shape, as errors and drawings tell it: `FP32 [-1, 384]`."""
        return f"{self.dtype} {list(self.dims)}"

    def fits(self, other: "Tensor") -> bool:
        """Whether one may feed the other; a varying length is only known at run time, so Triton lets it pass."""
        return self.dtype == other.dtype and _same_shape(self.dims, other.dims)


@dataclass(frozen=True)
class Model:
    """What a pipeline must know of a model: the contract of a hand-written one; a generated one is a `Member`."""

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    max_batch_size: int = MAX_ROWS
    buckets: tuple[int, ...] = ()
    """The lengths that its varying axis is warmed at."""
    max_queue_size: int = 0
    """Requests that may wait, 0 for no bound. Only a pipeline's entry may have one."""


@dataclass(frozen=True)
class Step:
    """A model's place in a pipeline: which edges it takes and gives, and which version is pinned."""

    model: Model
    takes: Edges
    gives: Edges
    version: int = 1
    reason: str = ""
    """Why it is wired so, for the reader of the configuration."""


@dataclass(frozen=True)
class Pipeline:
    """An ensemble. Making one that cannot work raises `BadDefinition`."""

    name: str
    summary: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    steps: tuple[Step, ...]
    slo_class: SloClass = "interactive"
    max_batch_size: int = MAX_ROWS
    buckets: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what Triton would refuse, or accept and then hang on."""
        faults = list(_faults(self))
        if faults:
            raise BadDefinition(f"pipeline {self.name}: " + "; ".join(faults))


def edges(*same: str, **renamed: str) -> dict[str, str]:
    """Tensors whose edge has the same name, then those whose edge has another: tensor="edge"."""
    return {name: name for name in same} | renamed


def _faults(pipeline: Pipeline) -> Iterator[str]:
    for step in pipeline.steps:
        yield from _mapping_faults(step)
        yield from _limit_faults(pipeline, step)
    given, twice = _given(pipeline)
    for edge in twice:
        yield f"{edge} is given twice"
    for taker, edge, wanted in _wanted(pipeline):
        if edge not in given:
            yield f"{taker} takes {edge}, which nothing gives"
        elif not given[edge].fits(wanted):
            yield f"{taker} is {wanted.kind}, but {edge} is {given[edge].kind}"
    taken = {edge for step in pipeline.steps for edge in step.takes.values()}
    results = {tensor.name for tensor in pipeline.outputs}
    made = {edge for step in pipeline.steps for edge in step.gives.values()}
    for edge in sorted(given.keys() - taken - (results & made)):  # Triton hands no input straight through
        yield f"nobody reads {edge}"
    for edge in sorted(taken & results):
        # Triton 2.51: asking for some of the outputs then fails with "unexpected deadlock".
        yield f"{edge} is an output and also a step's input: let the step pass it through under another name"
    yield from _cycle_faults(pipeline)


def _mapping_faults(step: Step) -> Iterator[str]:
    if step.version < 1:
        yield f"{step.model.name} is pinned to version {step.version}: name one, or no rollback can hold"
    inputs, outputs = ({tensor.name for tensor in side} for side in (step.model.inputs, step.model.outputs))
    for name in sorted(inputs - step.takes.keys()):
        yield f"{step.model.name}'s input {name} is left open"
    for name in sorted((step.takes.keys() - inputs) | (step.gives.keys() - outputs)):
        yield f"{step.model.name} has no tensor {name}"


def _limit_faults(pipeline: Pipeline, step: Step) -> Iterator[str]:
    model = step.model
    if pipeline.max_batch_size > model.max_batch_size:
        yield f"max_batch_size {pipeline.max_batch_size} is above {model.name}'s {model.max_batch_size}"
    if model.max_queue_size and not _is_first(pipeline, step):
        yield f"{model.name} bounds its queue behind another step, which can wedge Triton 2.51: bound the first step's"
    elif model.max_queue_size and sum(_is_first(pipeline, other) for other in pipeline.steps) > 1:
        yield f"{model.name} bounds its queue beside another first step: a full queue ends Triton 2.51, or is not told"
    cold = sorted(set(pipeline.buckets) - set(model.buckets))
    if cold and model.buckets:
        yield f"{model.name} is not warmed at {', '.join(map(str, cold))}"


def _is_first(pipeline: Pipeline, step: Step) -> bool:
    """Whether a step takes only what comes from outside."""
    return {tensor.name for tensor in pipeline.inputs}.issuperset(step.takes.values())


def _given(pipeline: Pipeline) -> tuple[dict[str, Tensor], list[str]]:
    """Every edge with what it carries, and those that more than one gives."""
    given: dict[str, Tensor] = {}
    twice: list[str] = []
    for edge, tensor in _givers(pipeline):
        twice += [edge] if edge in given else []
        given[edge] = tensor
    return given, twice


def _givers(pipeline: Pipeline) -> Iterator[tuple[str, Tensor]]:
    yield from ((tensor.name, tensor) for tensor in pipeline.inputs)
    for step in pipeline.steps:
        outputs = {tensor.name: tensor for tensor in step.model.outputs}
        yield from ((edge, outputs[name]) for name, edge in step.gives.items() if name in outputs)


def _wanted(pipeline: Pipeline) -> Iterator[tuple[str, str, Tensor]]:
    """Who takes which edge, and what it must be."""
    for step in pipeline.steps:
        inputs = {tensor.name: tensor for tensor in step.model.inputs}
        for name, edge in step.takes.items():
            if name in inputs:
                yield f"{step.model.name}'s input {name}", edge, inputs[name]
    yield from ((f"output {tensor.name}", tensor.name, tensor) for tensor in pipeline.outputs)


def _cycle_faults(pipeline: Pipeline) -> Iterator[str]:
    # By number: a pipeline may have the same model twice.
    giver = {edge: number for number, step in enumerate(pipeline.steps) for edge in step.gives.values()}
    graph = {
        number: {giver[edge] for edge in step.takes.values() if edge in giver}
        for number, step in enumerate(pipeline.steps)
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as exc:
        yield f"a cycle: {' -> '.join(pipeline.steps[number].model.name for number in exc.args[1])}"


def _same_shape(one: Sequence[int], other: Sequence[int]) -> bool:
    return len(one) == len(other) and all(a == b or -1 in (a, b) for a, b in zip(one, other, strict=True))
