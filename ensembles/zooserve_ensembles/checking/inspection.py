"""One pass over a repository: read it, run every rule, sort what they found."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from zooserve_ensembles.checking import (
    batching,
    edges,
    graphs,
    hardware,
    house,
    queues,
    reading,
    serving,
    tensors,
    versions,
    vocabularies,
    warmups,
    weights,
)
from zooserve_ensembles.checking.findings import Finding, Place, Report, Rule
from zooserve_ensembles.checking.repository import Repository, Target
from zooserve_ensembles.rendering import is_rendered

__all__ = ["ALL_RULES", "check_repository"]

_MODULES = (
    reading,
    tensors,
    edges,
    versions,
    batching,
    queues,
    serving,
    hardware,
    warmups,
    weights,
    graphs,
    vocabularies,
    house,
)

ALL_RULES: tuple[Rule, ...] = tuple(rule for module in _MODULES for rule in module.RULES)
"""Every rule, grouped by what it is about."""


def check_repository(root: Path, target: Target | None = None, fetched: Collection[Path] = ()) -> Report:
    """What is wrong with the repository at `root`, by file and line.

    A repository with rendered configurations is ours, and keeps our rules too: `fetched` are the files, relative to it,
    that are placed by `zooserve fetch`, and the embedded Triton is its target.
    """
    repository, findings = reading.read_repository(root)
    if any(is_rendered(model.folder) for model in repository.models.values()):
        target = target or Target.EMBEDDED
        repository = replace(repository, is_house=True, fetched=frozenset(fetched))
    repository = replace(repository, target=target)
    findings += _findings(repository)
    return Report(
        len(repository.models) + len(repository.unreadable),
        len(repository.ensembles),
        tuple(sorted(findings, key=_order)),
    )


def _findings(repository: Repository) -> list[Finding]:
    return [
        *tensors.config_findings(repository),
        *edges.ensemble_findings(repository),
        *versions.version_findings(repository),
        *batching.batching_findings(repository),
        *queues.queue_findings(repository),
        *serving.serving_findings(repository),
        *hardware.hardware_findings(repository),
        *warmups.warmup_findings(repository),
        *weights.weights_findings(repository),
        *graphs.graph_findings(repository),
        *vocabularies.vocabulary_findings(repository),
        *house.house_findings(repository),
    ]


def _order(finding: Finding) -> tuple[Place, str, str]:
    return finding.place, finding.rule, finding.message
