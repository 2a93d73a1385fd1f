"""One pass over every leaf directory below a folder: read it, run every rule, sort what they found."""

from pathlib import Path

from zooserve_ensembles.checking.findings import Finding, Place, Report, Rule
from zooserve_ensembles.leaf_directory import arguments, instances, reading, releases, scopes, tensors
from zooserve_ensembles.leaf_directory.reading import LeafDirectory, leaf_folders, read_leaf_directory

__all__ = ["LEAF_RULES", "check_leaf_directories"]

_MODULES = (reading, scopes, tensors, arguments, instances, releases)

LEAF_RULES: tuple[Rule, ...] = tuple(rule for module in _MODULES for rule in module.RULES)
"""Every rule, grouped by what it is about."""


def check_leaf_directories(root: Path, launch: Path | None = None, release: str | None = None) -> Report:
    """What is wrong with the leaf's model directories at or below `root`, by file and line.

    `launch` is the script that starts them, `release` the library's release where release.yaml does not say.
    """
    folders = list(leaf_folders(root)) if root.is_dir() else []
    findings = (
        [] if folders else [reading.NONE.at(Place(root), "give a folder that holds config.pbtxt and 1/model.yaml")]
    )
    for folder in folders:
        leaf, found = read_leaf_directory(folder, launch)
        findings += found
        if leaf is not None:
            findings += _findings(leaf, release)
    return Report(len(folders), 0, tuple(sorted(findings, key=_order)))


def _findings(leaf: LeafDirectory, library: str | None) -> list[Finding]:
    release = releases.declared_release(leaf, library)
    found = [
        *scopes.scope_findings(leaf),
        *tensors.tensor_findings(leaf, release),
        *releases.release_findings(leaf, library),
    ]
    if leaf.is_embedded:
        return found
    found += instances.instance_findings(leaf, release)
    if release is not None:
        found += arguments.argument_findings(leaf, release)
    return found


def _order(finding: Finding) -> tuple[Place, str, str]:
    return finding.place, finding.rule, finding.message
