"""Rules of queues: where a bound wedges the server, and when a request's own timeout counts."""

from collections.abc import Iterator

from zooserve_ensembles.checking.findings import Finding, Place, Rule, Severity
from zooserve_ensembles.checking.repository import Config, Repository, Source
from zooserve_ensembles.checking.wiring import Wiring, wire

__all__ = ["RULES", "queue_findings"]

BOUND = Rule(
    "queue-bound",
    Severity.ERROR,
    "max_queue_size on a step that is not the only one to read its ensemble's inputs: a full queue behind or beside a "
    "fan-out wedges or ends Triton 2.51",
)
TIMEOUT_IGNORED = Rule(
    "timeout-ignored",
    Severity.ERROR,
    "A request's own timeout counts only with default_timeout_microseconds and allow_timeout_override; outside our zoo "
    "a warning where only the latter is set, and a note where only the former is",
)

RULES = (BOUND, TIMEOUT_IGNORED)


def queue_findings(repository: Repository) -> Iterator[Finding]:
    """The queue policies of every model, in its configuration and its variants."""
    for model in repository.stages:
        for config, source in ((model.config, model.source), *((each.config, each.source) for each in model.variants)):
            for path in _bounded(config):
                yield from _bound(model.name, source.place(*path), repository)
            yield from _timeout(config, source, house=repository.is_house)


def _bound(name: str, at: Place, repository: Repository) -> Iterator[Finding]:
    for place, harm in _harms(name, repository, frozenset()):
        where = f"{place.file.relative_to(repository.root)}:{place.line}"
        yield BOUND.at(
            at,
            f"max_queue_size of {name} ({where}): {harm}. Remove it; bound a step that alone reads the inputs",
        )


def _harms(name: str, repository: Repository, seen: frozenset[str]) -> Iterator[tuple[Place, str]]:
    """Where the model runs as a step whose full queue does harm, and which; an ensemble hands its own place on."""
    if name in seen:
        return
    for ensemble, index in repository.users(name):
        if harm := _harm(wire(ensemble, repository), index):
            yield ensemble.source.place("ensemble_scheduling", ("step", index), "model_name"), harm
        else:
            yield from _harms(ensemble.name, repository, seen | {name})


def _harm(wiring: Wiring, index: int) -> str:
    """What a full queue at this step does; empty where it only refuses."""
    ensemble = wiring.ensemble.name
    beside = sorted(wiring.readers() - {index})
    if wiring.sources(index):
        if wiring.fans_out():
            return (
                f"it is not the first step of {ensemble}, which fans out: a full queue there wedges Triton 2.51 for "
                "good, and it still calls itself ready"
            )
        return (
            f"it is not the first step of {ensemble}: a chain as linear as this one only refuses, but with its first "
            "fan-out a full queue there wedges Triton 2.51 for good"
        )
    if beside:
        other = wiring.steps[beside[0]].model_name
        return (
            f"{other} reads the inputs of {ensemble} beside it: a refused request is then never answered, and Triton "
            "2.51 may end"
        )
    return ""


def _bounded(config: Config) -> Iterator[tuple[str | tuple[str, str], ...]]:
    batcher = config.dynamic_batching
    if batcher.default_queue_policy.max_queue_size:
        yield ("dynamic_batching", "default_queue_policy", "max_queue_size")
    for level in sorted(batcher.priority_queue_policy):
        if batcher.priority_queue_policy[level].max_queue_size:
            yield ("dynamic_batching", ("priority_queue_policy", str(level)), "value", "max_queue_size")


def _timeout(config: Config, source: Source, *, house: bool) -> Iterator[Finding]:
    policy = config.dynamic_batching.default_queue_policy
    timed, allowed = bool(policy.default_timeout_microseconds), policy.allow_timeout_override
    if (timed and allowed) or not (house or timed or allowed):
        return
    missing = [
        name
        for name, there in (("default_timeout_microseconds", timed), ("allow_timeout_override: true", allowed))
        if not there
    ]
    yield TIMEOUT_IGNORED.at(
        source.place("dynamic_batching", "default_queue_policy"),
        f"a request's own timeout is ignored here: add {' and '.join(missing)} to default_queue_policy",
        Severity.ERROR if house else Severity.WARNING if allowed else Severity.NOTE,
    )
