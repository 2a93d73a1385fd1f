"""One pass over a repository: read it, run every rule, sort what they found."""

from pathlib import Path

from zooserve_ensembles.checking.edges import ensemble_findings
from zooserve_ensembles.checking.findings import Finding, Report
from zooserve_ensembles.checking.reading import read_repository

__all__ = ["check_repository"]


def check_repository(root: Path) -> Report:
    """What is wrong with the repository at `root`, by file and line."""
    repository, findings = read_repository(root)
    findings += ensemble_findings(repository)
    return Report(len(repository.models), len(repository.ensembles), tuple(sorted(findings, key=_order)))


def _order(finding: Finding) -> tuple[str, int, str, str]:
    return str(finding.place.file), finding.place.line, finding.rule, finding.message
