"""Rules of versions: which ones a policy loads, and which ones ensembles pin."""

import re
from collections.abc import Iterator

from zooserve_ensembles.checking.findings import Finding, Rule, Severity
from zooserve_ensembles.checking.repository import Model, Repository

__all__ = ["RULES", "version_findings"]

FLOATING = Rule(
    "floating-version",
    Severity.ERROR,
    "A step of a released ensemble takes the latest version (-1), so that no rollback can hold; a warning where "
    "nothing shows that the ensemble is released",
)
UNPINNED = Rule("version-missing", Severity.ERROR, "A step names no version, which Triton reads as version 0")
NO_FOLDER = Rule("pinned-version-missing", Severity.ERROR, "A step pins a version that has no folder")
EXCLUDED = Rule(
    "pinned-version-excluded", Severity.ERROR, "The member's version_policy does not load the pinned version"
)
POLICY = Rule("policy-loads-nothing", Severity.ERROR, "A version_policy names versions that have no folder")

RULES = (FLOATING, UNPINNED, NO_FOLDER, EXCLUDED, POLICY)

_RELEASE = re.compile(r".*[_-]v\d+")


def version_findings(repository: Repository) -> Iterator[Finding]:
    """Every step's pin and every model's policy."""
    for ensemble in repository.ensembles:
        for index, step in enumerate(ensemble.config.ensemble_scheduling.step):
            member = repository.models.get(step.model_name)
            if member is not None and member.versions:
                yield from _pin(ensemble, index, member, repository)
    for model in repository.models.values():
        yield from _policy(model)


def _pin(ensemble: Model, index: int, member: Model, repository: Repository) -> Iterator[Finding]:
    source, pinned = ensemble.source, ensemble.config.ensemble_scheduling.step[index].model_version
    at = source.place("ensemble_scheduling", ("step", index), "model_version")
    latest = member.served[-1] if member.served else member.versions[-1]
    if pinned == -1:
        why = _released(ensemble, member, repository)
        yield FLOATING.at(
            at,
            f"step {member.name} takes whichever version is the latest (model_version: -1): a rollback of "
            f"{ensemble.name} would not bring its old member back{f', and {why}' if why else ''}. "
            f"Pin it: model_version: {latest}",
            Severity.ERROR if why else Severity.WARNING,
        )
    elif pinned not in member.versions:
        if not _written(ensemble, index):
            yield UNPINNED.at(
                source.place("ensemble_scheduling", ("step", index), "model_name"),
                f"step {member.name} names no version, and Triton reads that as 0: write model_version: {latest}",
            )
            return
        yield NO_FOLDER.at(
            at,
            f"step {member.name} is pinned to version {pinned}, but {member.name}/{pinned}/ is not there; "
            f"it has {_listed(member.versions)}",
        )
    elif pinned not in member.served:
        yield EXCLUDED.at(
            at,
            f"step {member.name} is pinned to version {pinned}, but {_loads(member)}: add version_policy "
            f"{{ specific {{ versions: [ {pinned} ] }} }} there, or pin {latest}",
        )


def _loads(member: Model) -> str:
    served = _listed(member.served) or "no version"
    if member.source.block.find("version_policy") is None:
        return f"{member.name}/{member.source.file.name} has no version_policy, so only the latest is loaded, {served}"
    place = member.source.place("version_policy")
    return f"its version_policy ({member.name}/{place.file.name}:{place.line}) loads only {served}"


def _released(ensemble: Model, member: Model, repository: Repository) -> str:
    """What shows that pins matter here, empty where nothing does."""
    versions = [step.model_version for step in ensemble.config.ensemble_scheduling.step]
    if any(version > 0 for version in versions):
        return "other steps of it are pinned"
    if any(step.model_version > 0 for other in repository.ensembles for step in other.config.ensemble_scheduling.step):
        return "other ensembles here are pinned"
    if repository.is_house:
        return "every ensemble of the zoo is a release"
    if len(member.versions) > 1:
        return f"{member.name} has the versions {_listed(member.versions)}"
    if _RELEASE.fullmatch(ensemble.name) or ensemble.versions[-1:] > (1,):
        return "its name or version says that it is a release"
    return ""


def _written(ensemble: Model, index: int) -> bool:
    scheduling = ensemble.source.block.find("ensemble_scheduling")
    if scheduling is None or isinstance(scheduling.value, str):
        return True
    step = scheduling.value.find(("step", index))
    return step is None or isinstance(step.value, str) or step.value.find("model_version") is not None


def _policy(model: Model) -> Iterator[Finding]:
    policy = model.config.version_policy
    if not policy.HasField("specific") or not model.versions:
        return
    at = model.source.place("version_policy", "specific", "versions")
    missing = [version for version in policy.specific.versions if version not in model.versions]
    if missing and not model.served:
        yield POLICY.at(
            at,
            f"version_policy loads {_listed(tuple(missing))}, but the folders are {_listed(model.versions)}: "
            "Triton serves no version of it",
        )
    elif missing:
        yield POLICY.at(at, f"version_policy names {_listed(tuple(missing))}, which has no folder", Severity.WARNING)


def _listed(versions: tuple[int, ...]) -> str:
    return ", ".join(map(str, versions))
