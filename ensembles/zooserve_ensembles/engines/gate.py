"""The golden gate of a plan: every golden text alone and among others, in each bucket, against the reference."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from zooserve_ensembles.buckets import bucket_for, padded

__all__ = ["LEAST_COSINE", "LEAST_TOGETHER", "Floats", "GateReport", "GoldenText", "Run", "judged"]

Floats = npt.NDArray[np.float32]
Run = Callable[[Mapping[str, npt.NDArray[Any]]], Floats]
"""Runs one padded batch of token ids and masks; answers a vector a row."""

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


def judged(golden: Sequence[GoldenText], run: Run, buckets: Sequence[int], max_batch: int) -> GateReport:
    """Run the texts. A text longer than the largest bucket must have been cut before."""
    alone = np.concatenate([run(_batch([text], bucket_for(len(text.ids), buckets))) for text in golden])
    wanted = np.stack([text.vector for text in golden])
    cosine = float(_cosines(alone, wanted).min())
    together = {str(bucket): _together(golden, alone, run, bucket, max_batch) for bucket in buckets}
    least = min(together.values())
    return GateReport(len(golden), cosine, least, together, tuple(_faults(cosine, together)))


def _together(golden: Sequence[GoldenText], alone: Floats, run: Run, bucket: int, max_batch: int) -> float:
    """The least cosine over full batches of that length; texts repeat where there are too few of them."""
    fitting = [place for place, text in enumerate(golden) if len(text.ids) <= bucket]
    if not fitting:
        return 1.0
    whole = -(-len(fitting) // max_batch) * max_batch
    places = [fitting[place % len(fitting)] for place in range(whole)]
    found = np.concatenate(
        [
            run(_batch([golden[place] for place in places[start : start + max_batch]], bucket))
            for start in range(0, whole, max_batch)
        ]
    )
    return float(_cosines(found, alone[places]).min())


def _batch(texts: Sequence[GoldenText], bucket: int) -> Mapping[str, npt.NDArray[Any]]:
    ids, mask, _ = padded([text.ids for text in texts], (bucket,))
    return {"input_ids": ids, "attention_mask": mask}


def _cosines(one: Floats, other: Floats) -> npt.NDArray[np.float64]:
    """Row by row; -1 where either is no number."""
    one, other = one.astype(np.float64), other.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = (one * other).sum(1) / (np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1))
    return np.where(np.isfinite(found), found, -1.0)


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
