"""How fast a plan is: texts a second in each bucket, alone and in full batches, copies to and from the GPU included."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from zooserve_ensembles.engines.profiles import Profile

__all__ = ["Speed", "measured"]

_WARM, _TIMED = 3, 20


@dataclass(frozen=True)
class Speed:
    """The median time of one batch, and what follows from it."""

    length: int
    batch: int
    batch_ms: float
    texts_per_s: float


def measured(
    run: Callable[[Mapping[str, npt.NDArray[Any]]], object],
    profiles: Sequence[Profile],
    token: int,
    clock: Callable[[], float],
) -> tuple[Speed, ...]:
    """Time each profile at one text and at its largest batch; the texts are that token again and again."""
    return tuple(
        _speed(run, np.full((batch, profile.length), token, np.int64), clock)
        for profile in profiles
        for batch in sorted({1, profile.max_batch})
    )


def _speed(
    run: Callable[[Mapping[str, npt.NDArray[Any]]], object], ids: npt.NDArray[np.int64], clock: Callable[[], float]
) -> Speed:
    batch, length = ids.shape
    inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    for _ in range(_WARM):
        run(inputs)
    taken = []
    for _ in range(_TIMED):
        start = clock()
        run(inputs)
        taken.append(clock() - start)
    middle = median(taken)
    return Speed(length, batch, round(middle * 1000, 3), round(batch / middle, 1) if middle else 0.0)
