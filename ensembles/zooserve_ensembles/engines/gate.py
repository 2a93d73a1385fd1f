"""The golden gate of a plan: every golden text alone and among others, in each bucket, against the reference."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from zooserve_ensembles.buckets import bucket_for, padded

__all__ = ["LEAST_COSINE", "LEAST_TOGETHER", "Floats", "GateReport", "GoldenText", "Run", "judged"]

Floats = npt.NDArray[np.float32]
Arrays = Mapping[str, npt.NDArray[Any]]
Run = Callable[[Arrays], Arrays]
"""Runs one padded batch of token ids and masks; answers each output, rows first."""
Answer = Mapping[str, Floats]
"""What one text got: each output, flat, what belongs to padding left out."""

LEAST_COSINE = 0.999
"""To the reference: what the served model itself must reach."""
LEAST_TOGETHER = 0.99999
"""Of a text alone and among others: what the served model itself must reach."""


@dataclass(frozen=True)
class GoldenText:
    """The token ids of a text, and the vector that the reference implementation gives it."""

    ids: tuple[int, ...]
    vector: Floats


@dataclass(frozen=True)
class GateReport:
    """What the gate measured; `faults` is empty where the plan passed."""

    texts: int
    least_cosine: float
    least_together: float
    buckets: dict[str, float]
    """By bucket: the least cosine of a text alone and in a full batch of that length."""
    faults: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the plan may be kept."""
        return not self.faults


def judged(golden: Sequence[GoldenText], run: Run, vector: str, buckets: Sequence[int], max_batch: int) -> GateReport:
    """Run the texts; the output `vector` is what the reference gives, and none may depend on other texts of a batch.

    A text longer than the largest bucket must have been cut before.
    """
    alone = [_answers([text], run, bucket_for(len(text.ids), buckets))[0] for text in golden]
    cosine = min(_cosine(answer[vector], text.vector) for answer, text in zip(alone, golden, strict=True))
    together = {str(bucket): _together(golden, alone, run, bucket, max_batch) for bucket in buckets}
    return GateReport(len(golden), cosine, min(together.values()), together, tuple(_faults(cosine, together)))


def _together(golden: Sequence[GoldenText], alone: Sequence[Answer], run: Run, bucket: int, max_batch: int) -> float:
    """The least cosine over full batches of that length; texts repeat where there are too few of them."""
    fitting = [place for place, text in enumerate(golden) if len(text.ids) <= bucket]
    whole = -(-len(fitting) // max_batch) * max_batch
    places = [fitting[place % len(fitting)] for place in range(whole)]
    least = 1.0
    for start in range(0, whole, max_batch):
        batch = places[start : start + max_batch]
        for place, answer in zip(batch, _answers([golden[each] for each in batch], run, bucket), strict=True):
            least = min(least, *(_cosine(answer[name], alone[place][name]) for name in answer))
    return least


def _answers(texts: Sequence[GoldenText], run: Run, bucket: int) -> list[Answer]:
    ids, mask, _ = padded([text.ids for text in texts], (bucket,))
    outputs = run({"input_ids": ids, "attention_mask": mask})
    return [
        {name: _own(array[row], len(text.ids)).ravel() for name, array in outputs.items()}
        for row, text in enumerate(texts)
    ]


def _own(row: Floats, tokens: int) -> Floats:
    """Of an output with something for each token, that for the text's own."""
    return row[:tokens] if row.ndim > 1 else row


def _cosine(one: Floats, other: Floats) -> float:
    """-1 where either is no number, or zero."""
    one, other = one.astype(np.float64), other.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        found = float(one @ other / (np.linalg.norm(one) * np.linalg.norm(other)))
    return found if np.isfinite(found) else -1.0


def _faults(cosine: float, together: Mapping[str, float]) -> list[str]:
    faults = []
    if cosine < LEAST_COSINE:
        faults.append(f"the least cosine to the reference is {cosine:.6f}; {LEAST_COSINE} is asked")
    faults += [
        f"in a full batch of {bucket} tokens a text's cosine to itself alone is {least:.6f}; {LEAST_TOGETHER} is asked"
        for bucket, least in together.items()
        if least < LEAST_TOGETHER
    ]
    return faults
