"""How good an order of passages is, and how sure of it one may be."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["interval", "reciprocal_ranks"]

Floats = npt.NDArray[np.float64]


def reciprocal_ranks(
    scores: npt.NDArray[np.floating] | Sequence[Sequence[float]], relevant: npt.NDArray[np.bool_], depth: int = 10
) -> Floats:
    """1 / the rank of the relevant candidate by score, 0 beyond `depth` or where none is; [questions, candidates] both.

    Of equal scores the one that stands first keeps its place, as the router has it.
    """
    order = np.argsort(-np.asarray(scores), axis=1, kind="stable")
    hits = np.take_along_axis(relevant, order, axis=1)[:, :depth]
    return np.asarray(np.where(hits.any(axis=1), 1.0 / (1 + hits.argmax(axis=1)), 0.0))


def interval(values: Floats, draws: int = 10_000, seed: int = 0) -> tuple[float, float]:
    """The 95% bootstrap interval of the mean: of per-question differences, when two orders are compared."""
    chance = np.random.default_rng(seed)
    means = [values[chance.integers(0, len(values), len(values))].mean() for _ in range(draws)]
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)
