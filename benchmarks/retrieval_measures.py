"""Measures of retrieval over ranks, fusion of rankings, and bootstrap intervals. Every question has one known answer.

A rank counts from 1; 0 says that the answer was not found.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

__all__ = ["best", "fused", "intervals", "ndcg", "rank_of", "recall", "reordered"]

Floats = npt.NDArray[np.float64]
Scores = npt.NDArray[np.floating]
Ranks = npt.NDArray[np.int64]


def recall(ranks: Ranks, depth: int) -> Floats:
    """1 for each question whose answer is among the first `depth`, else 0: with one answer, recall is that."""
    return np.asarray((ranks > 0) & (ranks <= depth), np.float64)


def ndcg(ranks: Ranks, depth: int = 10) -> Floats:
    """1 / log2(1 + rank) of each question's answer, 0 beyond `depth`: with one answer, the best order has 1."""
    found = recall(ranks, depth)
    return np.asarray(found / np.log2(1.0 + np.maximum(ranks, 1)))


def rank_of(answer: int, ranking: Sequence[int]) -> int:
    """Where the answer stands in a ranking, 0 if nowhere."""
    return ranking.index(answer) + 1 if answer in ranking else 0


def best(scores: Scores, depth: int) -> list[list[int]]:
    """Columns by falling score, `depth` of each row; of equal scores the first stands first."""
    return [[int(place) for place in row[:depth]] for row in np.argsort(-scores, axis=1, kind="stable")]


def fused(rankings: Sequence[Sequence[int]], k: int = 2, weights: Sequence[float] = ()) -> list[int]:
    """Reciprocal rank fusion as Qdrant's Query API has it: a list's n-th item gets 1 / (n / weight + k - 1).

    Without weights all are 1; Qdrant's k is 2. Of equal sums the one that was met first stands first.
    """
    sums: dict[int, float] = {}
    for ranking, weight in zip(rankings, weights or [1.0] * len(rankings), strict=True):
        for place, item in enumerate(ranking, 1):
            sums[item] = sums.get(item, 0.0) + 1 / (place / weight + k - 1)
    return sorted(sums, key=lambda item: -sums[item])


def reordered(ranking: Sequence[int], scores: Sequence[float]) -> list[int]:
    """The first items by the scores given for them, then the others as they stood."""
    order = sorted(range(len(scores)), key=lambda place: -scores[place])
    return [*(ranking[place] for place in order), *ranking[len(scores) :]]


def intervals(values: Floats, draws: int = 10_000, seed: int = 0) -> tuple[Floats, Floats]:
    """95% bootstrap intervals of each column's mean; [questions, columns] to two rows [columns].

    All columns see the same draws of questions. Raises ValueError without questions.
    """
    questions = len(values)
    if not questions:
        raise ValueError("there are no questions to draw from")
    means = _drawn(questions, draws, seed) @ values / questions
    low, high = np.percentile(means, [2.5, 97.5], axis=0)
    return low, high


@lru_cache(maxsize=1)
def _drawn(questions: int, draws: int, seed: int) -> Floats:
    """How often each question is in each draw, [draws, questions]; the same for every table of a set."""
    chance = np.random.default_rng(seed)
    return chance.multinomial(questions, np.full(questions, 1 / questions), size=draws).astype(np.float64)
