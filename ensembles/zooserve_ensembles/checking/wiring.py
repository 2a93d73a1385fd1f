"""An ensemble's edges: who gives each, who takes it, and where each of them says so."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from zooserve_ensembles.checking.findings import Place
from zooserve_ensembles.checking.repository import Config, Contract, Model, Repository, Tensor

__all__ = ["INPUT", "OUTPUT", "End", "Wiring", "wire"]

INPUT, OUTPUT = -1, -2
"""In place of a step's index: the ensemble itself, as the giver of its inputs and the taker of its outputs."""


@dataclass(frozen=True)
class End:
    """One end of an edge. `tensor` is None where the model cannot be read or has no tensor of that name."""

    edge: str
    step: int
    name: str
    tensor: Tensor | None
    place: Place


@dataclass(frozen=True)
class Wiring:
    """The ends of every edge of one ensemble, givers and takers, in the order of its configuration."""

    ensemble: Model
    givers: tuple[End, ...]
    takers: tuple[End, ...]

    @property
    def steps(self) -> list[Config]:
        """The steps as configured."""
        return list(self.ensemble.config.ensemble_scheduling.step)

    def who(self, end: End) -> str:
        """How an error calls this end."""
        if end.step == INPUT:
            return f"the ensemble's input {end.name}"
        if end.step == OUTPUT:
            return f"the ensemble's output {end.name}"
        return f"{self.steps[end.step].model_name}'s {end.name}"

    def given(self) -> Mapping[str, End]:
        """The first giver of each edge."""
        return {end.edge: end for end in reversed(self.givers)}

    def sources(self, step: int) -> set[int]:
        """The steps that this one waits for."""
        given = self.given()
        return {given[end.edge].step for end in self.takers if end.step == step and end.edge in given} - {INPUT}

    def readers(self) -> set[int]:
        """The steps that read an input of the ensemble."""
        inputs = {end.edge for end in self.givers if end.step == INPUT}
        return {end.step for end in self.takers if end.edge in inputs} - {OUTPUT}

    def fans_out(self) -> bool:
        """Whether more than one step reads what one step gives, or more than one the inputs."""
        waiting = [self.sources(step) for step in range(len(self.steps))]
        return len(self.readers()) > 1 or any(
            sum(giver in sources for sources in waiting) > 1 for giver in range(len(waiting))
        )


def wire(ensemble: Model, repository: Repository) -> Wiring:
    """The edges of an ensemble, as far as its members can be read."""
    givers = [
        End(name, INPUT, name, tensor, tensor.place) for name, tensor in ensemble.inputs.tensors.items()
    ]  # fmt: skip
    takers: list[End] = []
    for index, step in enumerate(ensemble.config.ensemble_scheduling.step):
        member = repository.models.get(step.model_name)
        takers += _ends(ensemble, index, "input_map", step.input_map, member.inputs if member else None)
        givers += _ends(ensemble, index, "output_map", step.output_map, member.outputs if member else None)
    takers += [End(name, OUTPUT, name, tensor, tensor.place) for name, tensor in ensemble.outputs.tensors.items()]
    return Wiring(ensemble, tuple(givers), tuple(takers))


def _ends(ensemble: Model, step: int, side: str, mapped: Mapping[str, str], contract: Contract | None) -> Iterator[End]:
    ends = [
        End(
            edge,
            step,
            name,
            contract.tensors.get(name) if contract else None,
            ensemble.source.place("ensemble_scheduling", ("step", step), (side, name), "value"),
        )
        for name, edge in mapped.items()
    ]
    # A protobuf map has no order of its own: the file's.
    yield from sorted(ends, key=lambda end: (end.place.line, end.name))
