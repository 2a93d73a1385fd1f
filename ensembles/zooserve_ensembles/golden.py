"""Golden answers as `zooserve new` writes them: what a model must answer, within a tolerance, and what differs."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Ask", "golden_faults"]

Inputs = Mapping[str, Any]
"""By tensor: its `datatype`, and its `data` as nested lists, the batch first."""
Ask = Callable[[str, Inputs], Mapping[str, Any]]
"""Asks a model; answers its outputs by name, as nested lists."""


def golden_faults(file: Path, ask: Ask) -> list[str]:
    """How the answers differ from those in `file`, one sentence each; empty when they do not."""
    document = json.loads(file.read_text(encoding="utf-8"))
    return [
        f"row {number}: {fault}"
        for number, row in enumerate(document["rows"])
        for fault in _faults(row["outputs"], ask(document["model"], row["inputs"]), document["tolerance"])
    ]


def _faults(wanted: Mapping[str, Any], answered: Mapping[str, Any], tolerance: float) -> list[str]:
    faults = []
    for name, values in wanted.items():
        if name not in answered:
            faults.append(f"there is no output {name}, but {', '.join(answered) or 'nothing'}")
            continue
        golden, found = np.asarray(values), np.asarray(answered[name])
        if golden.shape != found.shape:
            faults.append(f"{name} has the shape {list(found.shape)}, golden is {list(golden.shape)}")
        elif golden.dtype.kind in "US":
            faults += [f"{name} is not as it was"] if (golden != found).any() else []
        elif not (difference := float(np.abs(golden - found).max(initial=0))) <= tolerance:  # also when it is NaN
            faults.append(f"{name} is off by {difference:.2e}; {tolerance:.0e} is allowed")
    return faults
