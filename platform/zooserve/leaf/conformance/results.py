"""What the probes found, one result each."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["Outcome", "Report", "Result"]

Outcome = Literal["pass", "fail", "not applicable"]


@dataclass(frozen=True)
class Result:
    """One probe's end."""

    probe: str
    trap: int | None
    """Which of the contract's ten traps it is about; None where it is about the contract itself."""
    outcome: Outcome
    why: str


@dataclass(frozen=True)
class Report:
    """All of them, in the order they ran."""

    endpoint: str
    results: Sequence[Result]

    @property
    def passes(self) -> bool:
        """Whether no probe failed."""
        return not self._count("fail")

    def summary(self) -> str:
        """One line, such as `grpc://here:1: 19 of 21 probes pass, 1 fails, 1 is not applicable`."""
        counts = [f"{self._count('pass')} of {len(self.results)} probes pass"]
        if failed := self._count("fail"):
            counts.append(f"{failed} fail")
        if skipped := self._count("not applicable"):
            counts.append(f"{skipped} not applicable")
        return f"{self.endpoint}: {', '.join(counts)}"

    def as_json(self) -> dict[str, Any]:
        """The report as plain values."""
        results = [asdict(result) for result in self.results]
        return {"endpoint": self.endpoint, "passes": self.passes, "results": results, "summary": self.summary()}

    def _count(self, outcome: Outcome) -> int:
        return sum(result.outcome == outcome for result in self.results)
