"""What the checker says: a rule, a place, a sentence. Rules are data, so that the documentation can list them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

__all__ = ["Finding", "Place", "Report", "Rule", "Severity"]


class Severity(StrEnum):
    """How much a finding weighs: only an error makes the check fail, unless it is strict about warnings too."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, order=True)
class Place:
    """A line of a file, counted from 1; line 0 is the file or folder as a whole."""

    file: Path
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else str(self.file)


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, where, and what to do about it."""

    place: Place
    severity: Severity
    rule: str
    message: str

    def __str__(self) -> str:
        kind = "" if self.severity is Severity.ERROR else f"{self.severity}: "
        return f"{self.place}: [{self.rule}] {kind}{self.message}"

    def as_json(self) -> dict[str, Any]:
        """The finding as plain values."""
        return {
            "file": str(self.place.file),
            "line": self.place.line,
            "severity": str(self.severity),
            "rule": self.rule,
            "message": self.message,
        }


@dataclass(frozen=True)
class Rule:
    """One kind of fault: its name, how much it weighs, and what it means."""

    name: str
    severity: Severity
    summary: str

    def at(self, place: Place, message: str, severity: Severity | None = None) -> Finding:
        """A finding of this rule; `severity` where the case weighs otherwise than usual."""
        return Finding(place, severity or self.severity, self.name, message)


@dataclass(frozen=True)
class Report:
    """Everything found in one repository, by file and line."""

    models: int
    ensembles: int
    findings: Sequence[Finding]

    def count(self, severity: Severity) -> int:
        """How many findings weigh this much."""
        return sum(finding.severity is severity for finding in self.findings)

    def passes(self, *, strict: bool = False) -> bool:
        """Whether there is no error; and no warning either, if strict."""
        return not self.count(Severity.ERROR) and not (strict and self.count(Severity.WARNING))

    def summary(self) -> str:
        """One line, such as `19 models, 5 ensembles: no faults`."""
        faults = [
            _counted(self.count(severity), str(severity))
            for severity in (Severity.ERROR, Severity.WARNING)
            if self.count(severity)
        ]
        looked_at = f"{_counted(self.models, 'model')}, {_counted(self.ensembles, 'ensemble')}"
        return f"{looked_at}: {', '.join(faults) or 'no faults'}"

    def as_json(self) -> dict[str, Any]:
        """The report as plain values."""
        counts = {key: value for key, value in asdict(self).items() if key != "findings"}
        return {**counts, "findings": [finding.as_json() for finding in self.findings], "summary": self.summary()}


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
