"""Rules of an ensemble's steps and edges: what Triton refuses when it builds the graph, and what it lets pass."""

from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter

from zooserve_ensembles.checking.findings import Finding, Place, Rule, Severity
from zooserve_ensembles.checking.reading import did_you_mean
from zooserve_ensembles.checking.repository import Contract, Model, Repository, Tensor
from zooserve_ensembles.checking.wiring import INPUT, OUTPUT, End, Wiring, wire

__all__ = ["RULES", "ensemble_findings"]

NO_STEPS = Rule("ensemble-empty", Severity.ERROR, "An ensemble has no step, or a step names no model or maps nothing")
PLATFORM = Rule("ensemble-platform", Severity.ERROR, 'An ensemble is told by platform: "ensemble", and has no backend')
UNFIT = Rule(
    "ensemble-setting",
    Severity.ERROR,
    "model_warmup, instance_group or optimization on an ensemble stops it from loading; response_cache answers with "
    "an old release",
)
UNKNOWN_MODEL = Rule("unknown-model", Severity.ERROR, "A step runs a model that is not in the repository")
UNKNOWN_TENSOR = Rule("unknown-tensor", Severity.ERROR, "A step maps a tensor that its model does not have")
OPEN_INPUT = Rule("open-input", Severity.ERROR, "A step leaves an input open that its model needs")
UNPRODUCED = Rule("unproduced-edge", Severity.ERROR, "A step takes an edge that nobody gives")
UNPRODUCED_OUTPUT = Rule("unproduced-output", Severity.ERROR, "Nobody produces an output of the ensemble")
UNREAD = Rule("unread-edge", Severity.ERROR, "Nobody reads an edge")
UNREAD_INPUT = Rule("unread-input", Severity.ERROR, "Nobody reads an input of the ensemble")
TWO_GIVERS = Rule("two-producers", Severity.ERROR, "Two steps give the same edge")
DTYPE = Rule("dtype-mismatch", Severity.ERROR, "The two ends of an edge have different types")
SHAPE = Rule("shape-mismatch", Severity.ERROR, "The two ends of an edge have different shapes; -1 fits anything")
CYCLE = Rule("cycle", Severity.ERROR, "Steps wait for each other, or ensembles contain each other")
OUTPUT_READ = Rule(
    "output-read-by-step",
    Severity.WARNING,
    "An output is also a step's input: a request for some of the outputs ends in a deadlock error",
)
DECOUPLED = Rule("decoupled-member", Severity.NOTE, "A member may answer more than once: only streaming requests fit")

RULES = (
    NO_STEPS,
    PLATFORM,
    UNFIT,
    UNKNOWN_MODEL,
    UNKNOWN_TENSOR,
    OPEN_INPUT,
    UNPRODUCED,
    UNPRODUCED_OUTPUT,
    UNREAD,
    UNREAD_INPUT,
    TWO_GIVERS,
    DTYPE,
    SHAPE,
    CYCLE,
    OUTPUT_READ,
    DECOUPLED,
)

_STEPS = "ensemble_scheduling"


def ensemble_findings(repository: Repository) -> Iterator[Finding]:
    """Everything about every ensemble's graph."""
    for ensemble in repository.ensembles:
        wiring = wire(ensemble, repository)
        yield from _settings(ensemble)
        yield from _steps(ensemble, repository)
        yield from _edges(wiring)
        yield from _kinds(wiring, repository)
        yield from _step_cycle(wiring)
    yield from _ensemble_cycles(repository)


def _settings(ensemble: Model) -> Iterator[Finding]:
    config, source = ensemble.config, ensemble.source
    if not config.ensemble_scheduling.step:
        yield NO_STEPS.at(source.place(_STEPS), "it has no step: list its models under ensemble_scheduling")
    if config.platform != "ensemble":
        yield PLATFORM.at(source.place("platform"), 'Triton knows an ensemble by platform: "ensemble" alone: write it')
    if config.backend:
        yield PLATFORM.at(source.place("backend"), f'an ensemble has no backend: remove backend: "{config.backend}"')
    if config.model_warmup:
        yield UNFIT.at(
            source.place("model_warmup"), "an ensemble with model_warmup does not load: warm its members instead"
        )
    if config.instance_group:
        yield UNFIT.at(
            source.place("instance_group"), "an ensemble with instance_group does not load: its members have them"
        )
    if config.HasField("optimization"):
        yield UNFIT.at(
            source.place("optimization"), "an ensemble with optimization does not load: put it into its members"
        )
    if config.response_cache.enable:
        yield UNFIT.at(
            source.place("response_cache"),
            "a cached ensemble goes on answering with an old member after a reload: cache a member instead",
        )


def _steps(ensemble: Model, repository: Repository) -> Iterator[Finding]:
    known = [name for name in (*repository.models, *repository.unreadable) if name != ensemble.name]
    for index, step in enumerate(ensemble.config.ensemble_scheduling.step):
        at = ensemble.source.place(_STEPS, ("step", index), "model_name")
        if not step.model_name:
            yield NO_STEPS.at(at, f"step {index + 1} names no model: add model_name")
            continue
        for side in ("input_map", "output_map"):
            if not getattr(step, side):
                yield NO_STEPS.at(at, f"step {step.model_name} has no {side}: Triton refuses a step without one")
        member = repository.models.get(step.model_name)
        if member is not None:
            yield from _mapping(ensemble, index, member)
        elif step.model_name not in repository.unreadable:
            yield UNKNOWN_MODEL.at(
                at, f"step {step.model_name} is not in this repository. {did_you_mean(step.model_name, known)}".strip()
            )


def _mapping(ensemble: Model, index: int, member: Model) -> Iterator[Finding]:
    step = ensemble.config.ensemble_scheduling.step[index]
    for side, contract in (("input", member.inputs), ("output", member.outputs)):
        for name in getattr(step, f"{side}_map"):
            if name not in contract.tensors and not contract.open:
                yield UNKNOWN_TENSOR.at(
                    ensemble.source.place(_STEPS, ("step", index), (f"{side}_map", name), "key"),
                    f"{member.name} has no {side} {name}. {did_you_mean(name, list(contract.tensors))}".strip(),
                )
    for name in _missing(member.inputs, list(step.input_map)) if step.input_map else ():
        yield OPEN_INPUT.at(
            ensemble.source.place(_STEPS, ("step", index), "model_name"),
            f"step {member.name} leaves its input {name} open: add an input_map for it, "
            f"or make it optional ({_in(ensemble, member.inputs.tensors[name].place)})",
        )
    if member.config.model_transaction_policy.decoupled:
        yield DECOUPLED.at(
            ensemble.source.place(_STEPS, ("step", index), "model_name"),
            f"{member.name} is decoupled: each of its answers makes one of the ensemble, which only a streaming call "
            "can take; it must send exactly one for a plain request",
        )


def _missing(contract: Contract, mapped: Sequence[str]) -> list[str]:
    return [name for name, tensor in contract.tensors.items() if name not in mapped and not tensor.optional]


def _edges(wiring: Wiring) -> Iterator[Finding]:
    given, taken = wiring.given(), {end.edge for end in wiring.takers}
    by_steps = {end.edge for end in wiring.takers if end.step != OUTPUT}
    for end in wiring.takers:
        if end.edge in given:
            continue
        hint = did_you_mean(end.edge, list(given))
        if end.step == OUTPUT:
            yield UNPRODUCED_OUTPUT.at(end.place, f"no step produces the output {end.name}. {hint}".strip())
        else:
            yield UNPRODUCED.at(
                end.place,
                f"{wiring.who(end)} takes {end.edge}, which nobody gives: neither a step nor an input. {hint}",
            )
    for end in wiring.givers:
        first = given[end.edge]
        if end is not first:
            yield TWO_GIVERS.at(
                end.place,
                f"{wiring.who(end)} gives {end.edge}, as {wiring.who(first)} does (line {first.place.line}): "
                "give it another name",
            )
        elif end.edge not in (by_steps if end.step == INPUT else taken):  # Triton hands no input straight through
            yield _unread(wiring, end)
    yield from _outputs_read(wiring)


def _unread(wiring: Wiring, end: End) -> Finding:
    if end.step == INPUT:
        return UNREAD_INPUT.at(
            end.place, f"no step reads the input {end.name}, so Triton refuses the ensemble: remove it"
        )
    return UNREAD.at(
        end.place,
        f"nobody reads {end.edge}, which {wiring.who(end)} gives: remove this output_map, or make it an output",
    )


def _outputs_read(wiring: Wiring) -> Iterator[Finding]:
    outputs = {end.edge for end in wiring.takers if end.step == OUTPUT}
    for end in wiring.takers:
        if end.edge in outputs and end.step != OUTPUT:
            yield OUTPUT_READ.at(
                end.place,
                f"{wiring.who(end)} takes {end.edge}, which is an output of the ensemble too: a request that does not "
                "ask for all outputs ends in a deadlock error. Let the step pass it through under another name",
            )
            outputs.discard(end.edge)


def _kinds(wiring: Wiring, repository: Repository) -> Iterator[Finding]:
    given = wiring.given()
    for taker in wiring.takers:
        giver = given.get(taker.edge)
        if giver is None or giver.tensor is None or taker.tensor is None:
            continue
        if giver.tensor.dtype != taker.tensor.dtype:
            yield _mismatch(DTYPE, "data_type", wiring, giver, taker)
        elif not giver.tensor.fits(taker.tensor):
            yield _mismatch(SHAPE, "dims", wiring, giver, taker)


def _mismatch(rule: Rule, field: str, wiring: Wiring, giver: End, taker: End) -> Finding:
    """At the ensemble's own declaration where it is one end, else where the taking step is wired."""
    ensemble = wiring.ensemble
    place = taker.place
    for end, side in ((taker, "output"), (giver, "input")):
        if end.step in (INPUT, OUTPUT):
            place = _declared(ensemble, side, end.name, field)
            break
    told = [
        f"{wiring.who(end)} is {_kind(end.tensor)} ({_in(ensemble, end.tensor.place)})"
        for end in (giver, taker)
        if end.tensor is not None
    ]
    return rule.at(place, f"{' but '.join(told)}, on the edge {taker.edge}: make them the same")


def _declared(model: Model, side: str, name: str, field: str) -> Place:
    index = next(index for index, entry in enumerate(getattr(model.config, side)) if entry.name == name)
    return model.source.place((side, index), field)


def _kind(tensor: Tensor | None) -> str:
    if tensor is None:
        return "unknown"
    return f"{tensor.kind}{'' if tensor.batched else ' without a batch'}"


def _in(ensemble: Model, place: Place) -> str:
    return str(Place(place.file.relative_to(ensemble.folder.parent), place.line))


def _step_cycle(wiring: Wiring) -> Iterator[Finding]:
    names = [step.model_name for step in wiring.steps]
    try:
        TopologicalSorter({step: wiring.sources(step) for step in range(len(names))}).prepare()
    except CycleError as exc:
        # Reversed, because the sorter walks from a step to what it waits for.
        steps = list(reversed(exc.args[1]))
        first = min(steps)
        given = wiring.given()
        waits = next(
            end for end in wiring.takers if end.step == first and end.edge in given and given[end.edge].step in steps
        )
        yield CYCLE.at(
            waits.place,
            f"these steps wait for each other: {' -> '.join(names[step] for step in _from(first, steps))}. "
            f"{names[first]} must not take {waits.edge} from a step behind it",
        )


def _from(first: int, loop: Sequence[int]) -> list[int]:
    """The loop, whose ends are the same, begun at `first`."""
    around = list(loop[:-1])
    start = around.index(first)
    return [*around[start:], *around[:start], first]


def _ensemble_cycles(repository: Repository) -> Iterator[Finding]:
    contains = {
        ensemble.name: {step.model_name for step in ensemble.config.ensemble_scheduling.step}
        for ensemble in repository.ensembles
    }
    for ensemble in repository.ensembles:
        for index, step in enumerate(ensemble.config.ensemble_scheduling.step):
            if ensemble.name in _within(step.model_name, contains):
                yield CYCLE.at(
                    ensemble.source.place(_STEPS, ("step", index), "model_name"),
                    f"{ensemble.name} contains itself by way of {step.model_name}: Triton loads none of them"
                    if step.model_name != ensemble.name
                    else f"{ensemble.name} is a step of itself: Triton cannot load it",
                )


def _within(name: str, contains: dict[str, set[str]]) -> set[str]:
    """A model and everything that runs inside it."""
    found, waiting = set[str](), [name]
    while waiting:
        if (current := waiting.pop()) not in found:
            found.add(current)
            waiting += contains.get(current, ())
    return found
