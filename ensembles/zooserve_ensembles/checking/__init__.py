"""Does a Triton repository hang together? Any repository: ours, and a stranger's.

A check passes: repository (folders and configurations, each field with its line) -> the rules, one module a noun ->
findings.
"""

from zooserve_ensembles.checking.findings import Finding, Place, Report, Rule, Severity
from zooserve_ensembles.checking.inspection import ALL_RULES, check_repository
from zooserve_ensembles.checking.repository import Target

__all__ = ["ALL_RULES", "Finding", "Place", "Report", "Rule", "Severity", "Target", "check_repository"]
