"""Rules of batch sizes: what an ensemble lets through, its members must take."""

from collections.abc import Iterator

from zooserve_ensembles.checking.findings import Finding, Rule, Severity
from zooserve_ensembles.checking.repository import Config, Model, Repository, Source, fitting
from zooserve_ensembles.checking.wiring import End, Wiring, wire

__all__ = ["RULES", "batching_findings"]

ABOVE_MEMBER = Rule(
    "batch-above-member",
    Severity.ERROR,
    "An ensemble's max_batch_size is above a member's, in config.pbtxt or a variant",
)
DISAGREE = Rule(
    "batch-disagreement",
    Severity.ERROR,
    "An ensemble batches and a member does not, or the other way round, and no shape says where the batch goes",
)
DIFFER = Rule(
    "batch-sizes-differ",
    Severity.NOTE,
    "The members of an ensemble batch up to different sizes: legal, and the smallest one is what counts",
)
NEGATIVE = Rule("batch-negative", Severity.ERROR, "max_batch_size is below 0")
PREFERRED = Rule("preferred-batch-size", Severity.ERROR, "A preferred_batch_size is not within 1 and max_batch_size")
IDLE_BATCHER = Rule("batcher-idle", Severity.WARNING, "dynamic_batching where max_batch_size is 0 joins nothing")
PRIORITY = Rule("priority-levels", Severity.ERROR, "Priorities of the batcher contradict each other")
CACHE_DECOUPLED = Rule("cache-decoupled", Severity.ERROR, "A decoupled model cannot have a response_cache")

RULES = (ABOVE_MEMBER, DISAGREE, DIFFER, NEGATIVE, PREFERRED, IDLE_BATCHER, PRIORITY, CACHE_DECOUPLED)


def batching_findings(repository: Repository) -> Iterator[Finding]:
    """Batch sizes of every model, and of every ensemble against its members."""
    for model in repository.models.values():
        yield from _own(model.config, model.source)
        for variant in model.variants:
            yield from _own(variant.config, variant.source)
    for ensemble in repository.ensembles:
        wiring = wire(ensemble, repository)
        for index, step in enumerate(wiring.steps):
            member = repository.models.get(step.model_name)
            if member is not None and _says_its_size(member):
                yield from _member(wiring, index, member)
        yield from _differing(wiring, repository)


def _own(config: Config, source: Source) -> Iterator[Finding]:
    size = config.max_batch_size
    if size < 0:
        yield NEGATIVE.at(source.place("max_batch_size"), f"max_batch_size {size} is below 0: 0 means no batching")
    if config.response_cache.enable and config.model_transaction_policy.decoupled:
        yield CACHE_DECOUPLED.at(
            source.place("response_cache"), "Triton refuses response_cache on a decoupled model: remove one of the two"
        )
    if not config.HasField("dynamic_batching"):
        return
    batcher = config.dynamic_batching
    for index, preferred in enumerate(batcher.preferred_batch_size):
        if not 0 < preferred <= size:
            yield PREFERRED.at(
                source.place("dynamic_batching", ("preferred_batch_size", index)),
                f"preferred_batch_size {preferred} is not within 1 and max_batch_size {size}: Triton refuses the model",
            )
    # A policy of the queue counts without batches too.
    if size == 0 and not batcher.preferred_batch_size and not batcher.HasField("default_queue_policy"):
        yield IDLE_BATCHER.at(
            source.place("dynamic_batching"),
            "dynamic_batching joins nothing while max_batch_size is 0: set max_batch_size, or remove it",
        )
    yield from _priorities(batcher, source)


def _priorities(batcher: Config, source: Source) -> Iterator[Finding]:
    levels = batcher.priority_levels
    if levels and not 0 < batcher.default_priority_level <= levels:
        yield PRIORITY.at(
            source.place("dynamic_batching", "priority_levels"),
            f"default_priority_level {batcher.default_priority_level} is not within 1 and {levels}: set it",
        )
    for level in sorted(batcher.priority_queue_policy):
        if levels and not 0 < level <= levels:
            yield PRIORITY.at(
                source.place("dynamic_batching", ("priority_queue_policy", str(level))),
                f"priority_queue_policy of level {level}, but there are only {levels}",
            )
    if batcher.preserve_ordering and levels > 1:
        yield PRIORITY.at(
            source.place("dynamic_batching", "preserve_ordering"), "preserve_ordering allows one priority level only"
        )


def _says_its_size(member: Model) -> bool:
    """Without declared tensors Triton may complete max_batch_size too."""
    return bool(member.config.input or member.config.output or member.source.block.find("max_batch_size"))


def _member(wiring: Wiring, index: int, member: Model) -> Iterator[Finding]:
    ensemble = wiring.ensemble
    size, limit = ensemble.config.max_batch_size, member.config.max_batch_size
    at = ensemble.source.place("max_batch_size")
    if (size > 0) != (limit > 0):
        if crossing := _crossing(wiring, index):
            yield DISAGREE.at(at, _disagreement(ensemble, member, crossing))
    elif size > limit:
        yield ABOVE_MEMBER.at(at, _above(ensemble, member, limit, member.source))
    for variant in member.variants:
        if limit > 0 and size > variant.config.max_batch_size and size <= limit:
            yield ABOVE_MEMBER.at(
                variant.source.place("max_batch_size"),
                _above(ensemble, member, variant.config.max_batch_size, variant.source),
            )


def _differing(wiring: Wiring, repository: Repository) -> Iterator[Finding]:
    members = [repository.models[step.model_name] for step in wiring.steps if step.model_name in repository.models]
    sizes = {member.name: member.config.max_batch_size for member in members if member.batched}
    if len(set(sizes.values())) > 1:
        told = ", ".join(f"{name} {size}" for name, size in sizes.items())
        yield DIFFER.at(
            wiring.ensemble.source.place("max_batch_size"), f"its steps batch up to different sizes: {told}"
        )


def _above(ensemble: Model, member: Model, limit: int, source: Source) -> str:
    place = source.place("max_batch_size")
    return (
        f"max_batch_size {ensemble.config.max_batch_size} of {ensemble.name} is above {member.name}'s {limit} "
        f"({place.file.relative_to(ensemble.folder.parent)}:{place.line}): lower the ensemble's, or raise the member's"
    )


def _disagreement(ensemble: Model, member: Model, crossing: End) -> str:
    place = member.source.place("max_batch_size")
    where = f"{place.file.relative_to(ensemble.folder.parent)}:{place.line}"
    if ensemble.batched:
        return (
            f"max_batch_size is {ensemble.config.max_batch_size}, but {member.name}'s is 0 ({where}), which takes "
            f"{crossing.edge} without a batch: every request of more than one row fails there. "
            "Make both 0, or let the member batch"
        )
    return (
        f"max_batch_size is 0, but {member.name}'s is {member.config.max_batch_size} ({where}), and the shape of "
        f"{crossing.edge} has no batch: each request is one row. Let the ensemble batch too, or give its tensors the "
        "batch as a first size of -1"
    )


def _crossing(wiring: Wiring, index: int) -> End | None:
    """An edge between the ensemble and this step on which only the shapes without the batch agree."""
    given = wiring.given()
    for taker in wiring.takers:
        giver = given.get(taker.edge)
        if giver is None or giver.tensor is None or taker.tensor is None or index not in (giver.step, taker.step):
            continue
        outer, inner = (giver, taker) if taker.step == index else (taker, giver)
        if outer.tensor is None or inner.tensor is None or outer.tensor.batched == inner.tensor.batched:
            continue
        if not fitting(outer.tensor.full, inner.tensor.full):
            return inner
    return None
