"""What a drawing of an ensemble shows, whatever it is drawn with: its steps, its tensors, what flows between them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from tritonclient.grpc import model_config_pb2 as pb

from zooserve_ensembles.configuration import ModelConfig

__all__ = ["Diagram", "Kind", "Link", "Node", "diagram_of"]


class Kind(StrEnum):
    """What a node stands for."""

    INPUT = "input"
    STEP = "step"
    OUTPUT = "output"
    FAULT = "fault"
    """Something that is not there, or that leads nowhere."""


@dataclass(frozen=True)
class Node:
    """A box: a step, or a tensor that enters or leaves."""

    kind: Kind
    title: str
    detail: str
    backend: str = ""


@dataclass(frozen=True)
class Link:
    """What one node hands to another, one label a tensor; no labels where a tensor's own node says it."""

    source: int
    target: int
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Diagram:
    """An ensemble as nodes, and links between their indices."""

    name: str
    detail: str
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]


@dataclass(frozen=True)
class _Given:
    node: int
    kind: str


def diagram_of(config: ModelConfig, configs: Mapping[str, ModelConfig]) -> Diagram:
    """The diagram of an ensemble among the configurations of its repository; what is wrong with it is drawn too."""
    steps = config.ensemble_scheduling.step
    nodes = [Node(Kind.INPUT, tensor.name, _kind(tensor)) for tensor in config.input]
    between = range(len(nodes), len(nodes) + len(steps))
    given = {tensor.name: _Given(number, _kind(tensor)) for number, tensor in enumerate(config.input)}
    for number, step in zip(between, steps, strict=True):
        for edge, kind in _gives(step, configs):
            given.setdefault(edge, _Given(number, kind))
    nodes += [_step(step, configs) for step in steps]
    taken = [(edge, number) for number, step in zip(between, steps, strict=True) for edge in _takes(step)]
    taken += [(tensor.name, number) for number, tensor in enumerate(config.output, len(nodes))]
    nodes += [Node(Kind.OUTPUT, tensor.name, _kind(tensor)) for tensor in config.output]
    read = {edge for edge, _ in taken}
    for edge in sorted(read - given.keys()):
        given[edge] = _Given(len(nodes), "")
        nodes.append(Node(Kind.FAULT, edge, "nothing gives it"))
    for edge in sorted(given.keys() - read):
        taken.append((edge, len(nodes)))
        nodes.append(Node(Kind.FAULT, edge, "nobody reads it"))
    for edge, number in taken:
        if given[edge].node == number:
            nodes[number] = replace(nodes[number], kind=Kind.FAULT, detail=f"takes {edge}, which it gives itself")
    return Diagram(config.name, _limits(config), tuple(nodes), tuple(_links(taken, given, between)))


def _links(taken: Sequence[tuple[str, int]], given: Mapping[str, _Given], steps: range) -> Iterator[Link]:
    """One link for each pair of nodes, in the order of what is taken."""
    labels: dict[tuple[int, int], list[str]] = {}
    for edge, target in taken:
        source = given[edge].node
        told = labels.setdefault((source, target), [])
        if source in steps and target in steps:
            told.append(f"{edge} {given[edge].kind}")
    return (Link(*ends, tuple(told)) for ends, told in labels.items() if ends[0] != ends[1])


def _step(step: Any, configs: Mapping[str, ModelConfig]) -> Node:
    version = "latest version" if step.model_version == -1 else f"version {step.model_version}"
    if step.model_name not in configs:
        return Node(Kind.FAULT, step.model_name, f"{version}, no configuration here")
    config = configs[step.model_name]
    backend = config.backend or config.platform or "no backend named"
    return Node(Kind.STEP, step.model_name, f"{version}, {backend}", backend)


def _takes(step: Any) -> list[str]:
    return [step.input_map[name] for name in sorted(step.input_map)]


def _gives(step: Any, configs: Mapping[str, ModelConfig]) -> Iterator[tuple[str, str]]:
    """Each edge of a step with what it carries, as far as the model's configuration tells."""
    kinds = {tensor.name: _kind(tensor) for tensor in getattr(configs.get(step.model_name), "output", ())}
    return ((step.output_map[name], kinds.get(name, "of unknown type")) for name in sorted(step.output_map))


def _limits(config: ModelConfig) -> str:
    return f"ensemble, up to {config.max_batch_size} rows a batch" if config.max_batch_size else "ensemble, no batches"


def _kind(tensor: Any) -> str:
    dtype = pb.DataType.Name(tensor.data_type).removeprefix("TYPE_")
    return f"{dtype} {list(tensor.dims)}"
