"""Rules of queues: where a bound wedges the server, and when a request's own timeout counts."""

from collections.abc import Iterator

from zooserve_ensembles.checking.findings import Finding, Place, Rule, Severity
from zooserve_ensembles.checking.repository import Config, Model, Repository, Source
from zooserve_ensembles.checking.wiring import wire

__all__ = ["RULES", "queue_findings"]

BOUND_BEHIND = Rule(
    "queue-bound-behind-entry",
    Severity.ERROR,
    "max_queue_size on any step but an ensemble's first: behind a fan-out a full queue wedges Triton 2.51 for good",
)
TIMEOUT_IGNORED = Rule(
    "timeout-ignored",
    Severity.ERROR,
    "A request's own timeout counts only with default_timeout_microseconds and allow_timeout_override; a warning "
    "outside our zoo, where only one of the two is set",
)

RULES = (BOUND_BEHIND, TIMEOUT_IGNORED)


def queue_findings(repository: Repository) -> Iterator[Finding]:
    """The queue policies of every model, in its configuration and its variants."""
    for model in repository.stages:
        behind = list(_behind_entry(model, repository))
        for config, source in ((model.config, model.source), *((each.config, each.source) for each in model.variants)):
            for path in _bounded(config):
                for ensemble, place, fans_out in behind:
                    yield BOUND_BEHIND.at(source.place(*path), _bound_told(model, ensemble, place, fans_out=fans_out))
            yield from _timeout(config, source, house=repository.is_house)


def _behind_entry(model: Model, repository: Repository) -> Iterator[tuple[Model, Place, bool]]:
    """Each ensemble that runs the model behind another step, where, and whether that ensemble fans out."""
    for ensemble in repository.ensembles:
        wiring = wire(ensemble, repository)
        steps = [index for index, step in enumerate(wiring.steps) if step.model_name == model.name]
        entries = wiring.entries()
        late = [index for index in steps if index not in entries]
        if late:
            waiting = [wiring.sources(index) for index in range(len(wiring.steps))]
            fans_out = any(sum(giver in sources for sources in waiting) > 1 for giver in range(len(waiting)))
            yield (
                ensemble,
                ensemble.source.place("ensemble_scheduling", ("step", late[0]), "model_name"),
                fans_out or len(entries) > 1,
            )


def _bounded(config: Config) -> Iterator[tuple[str | tuple[str, str], ...]]:
    batcher = config.dynamic_batching
    if batcher.default_queue_policy.max_queue_size:
        yield ("dynamic_batching", "default_queue_policy", "max_queue_size")
    for level in sorted(batcher.priority_queue_policy):
        if batcher.priority_queue_policy[level].max_queue_size:
            yield ("dynamic_batching", ("priority_queue_policy", str(level)), "value", "max_queue_size")


def _bound_told(model: Model, ensemble: Model, place: Place, *, fans_out: bool) -> str:
    where = f"{ensemble.name}/{place.file.name}:{place.line}"
    harm = (
        "when this queue is full behind a fan-out, Triton 2.51 wedges for good and still calls itself ready"
        if fans_out
        else "this chain is linear and only refuses, but the first fan-out added to it wedges Triton 2.51 for good"
    )
    return (
        f"max_queue_size of {model.name}, which is not the first step of {ensemble.name} ({where}): {harm}. "
        "Bound the ensemble's first step instead"
    )


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
        Severity.ERROR if house else Severity.WARNING,
    )
