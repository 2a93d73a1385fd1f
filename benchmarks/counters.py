"""An encoder's counters in Triton: how many rows came in how many calls, and in how many runs they ran."""

import json
import urllib.request
from dataclasses import astuple, dataclass

__all__ = ["Counts", "counts"]


@dataclass(frozen=True)
class Counts:
    """One encoder's counters at one moment, or what they moved between two."""

    rows: int = 0
    calls: int = 0
    runs: int = 0
    elements: int = 0
    """Tokens in all runs, padding too."""

    def since(self, before: "Counts") -> "Counts":
        """What came since."""
        return Counts(*(now - then for now, then in zip(astuple(self), astuple(before), strict=True)))

    def plus(self, other: "Counts") -> "Counts":
        """Both together."""
        return Counts(*(one + more for one, more in zip(astuple(self), astuple(other), strict=True)))

    @property
    def rows_per_call(self) -> float:
        """Rows that Triton handed over at once."""
        return self.rows / max(1, self.calls)

    @property
    def rows_per_run(self) -> float:
        """Rows that ONNX Runtime ran at once."""
        return self.rows / max(1, self.runs)


def counts(http: str, metrics: str, model: str) -> Counts:
    """Read them from the statistics and the metrics page at these addresses, host:port each."""
    with urllib.request.urlopen(f"http://{http}/v2/models/{model}/stats", timeout=10) as answer:
        stats = json.load(answer)["model_stats"][0]
    with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    runs, elements = (
        next((int(float(line.rpartition(" ")[2])) for line in lines if line.startswith(f'{name}{{model="{model}"')), 0)
        for name in ("zooserve_onnx_runs", "zooserve_onnx_run_elements")
    )
    return Counts(stats["inference_count"], stats["execution_count"], runs, elements)
