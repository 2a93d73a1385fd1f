"""What the check of a stack found, as lines and as plain values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zooserve_ensembles.checking.findings import Finding, Severity

__all__ = ["StackReport"]


@dataclass(frozen=True)
class StackReport:
    """Everything found in one compose file, by file and line."""

    file: str
    env_file: str
    services: int
    profiles: tuple[str, ...]
    """Each was looked at by itself."""
    findings: Sequence[Finding]

    @property
    def passes(self) -> bool:
        """Whether there is no error."""
        return not self._count(Severity.ERROR)

    def summary(self) -> str:
        """One line, such as `14 services, profiles gpu, cpu, with .env: no faults`."""
        faults = [
            f"{count} {severity}{'' if count == 1 else 's'}"
            for severity in (Severity.ERROR, Severity.WARNING)
            if (count := self._count(severity))
        ]
        profiles = (
            f", {'profile' if len(self.profiles) == 1 else 'profiles'} {', '.join(self.profiles)}"
            if self.profiles
            else ""
        )
        services = f"{self.services} service{'' if self.services == 1 else 's'}"
        return f"{services}{profiles}, with {self.env_file}: {', '.join(faults) or 'no faults'}"

    def as_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return {
            "file": self.file,
            "env_file": self.env_file,
            "services": self.services,
            "profiles": list(self.profiles),
            "findings": [finding.as_json() for finding in self.findings],
            "summary": self.summary(),
        }

    def _count(self, severity: Severity) -> int:
        return sum(finding.severity is severity for finding in self.findings)
