"""What a tree model ranks by: numbers about one query and one document, from their tokens and vectors.

A row depends on its own document and the query alone, not on the other candidates: the router may cut a long list into
several requests, and a document must score the same in each. Ranks and differences to the best candidate, which such
models often take too, were left out for that; what they would add is measured in docs/models/rerank_trees.md.
"""

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from zooserve_ensembles.late_interaction import Floats, token_cosines, unit

__all__ = ["FEATURES", "rank_features", "rounded"]

Ids = npt.NDArray[np.int64]

FEATURES = (
    "cosine",
    "maxsim",
    "maxsim_by_rarity",
    "weakest_token",
    "reverse_maxsim",
    "bm25",
    "overlap",
    "overlap_by_rarity",
    "bigrams",
    "first_match",
    "query_tokens",
    "query_rarity",
    "document_log_tokens",
)
"""The columns, in order; the committed trees know them by it."""

STEPS = 1024
"""Per unit: features are rounded to multiples of 1/1024, which float32 holds exactly, as it does the thresholds between
them. Unrounded, 0.04% of rows fell on the other side of a threshold in float32, and scored up to 0.11 off."""

K1, B, MEAN_TOKENS = 1.2, 0.75, 128.0
"""BM25's constants. The mean length is a constant too: the candidates at hand must not shift it."""


def rounded(values: npt.ArrayLike) -> Floats:
    """Values on the grid that the trees are fitted on."""
    return np.asarray(np.round(np.asarray(values, np.float64) * STEPS) / STEPS, np.float32)


def rank_features(ids: Ids, mask: Ids, tokens: Floats, pooled: Floats, rarity: Floats) -> Floats:
    """Features [rows, len(FEATURES)] of the documents in rows 1.. for the query in row 0, whose own row is 0.

    `ids` and `mask` [rows, length], `tokens` [rows, length, size] raw token vectors, `pooled` [rows, size] of unit
    length, `rarity` the inverse document frequency of every token id. Rows begin with CLS and end with SEP.
    """
    features = np.zeros((len(ids), len(FEATURES)), np.float64)
    query = slice(1, max(1, int(mask[0].sum()) - 1))
    terms = ids[0, query]
    if len(ids) < 2 or not len(terms):
        return rounded(features)
    length = max(1, int(mask[1:].sum(1).max()))
    ids, mask = ids[:, :length], mask[:, :length]
    cosines = token_cosines(unit(tokens[0, query]), tokens[1:, :length], mask[1:])
    weights = rarity[terms] / rarity[terms].sum()
    features[1:, 0] = pooled[1:] @ pooled[0]
    features[1:, 1:5] = _by_vectors(cosines, mask[1:], weights)
    features[1:, 5:10] = [_by_words(terms, row[1 : max(1, count - 1)], rarity) for row, count in _rows(ids, mask)]
    features[1:, 10] = len(terms)
    features[1:, 11] = rarity[terms].mean()
    features[1:, 12] = np.log1p(mask[1:].sum(1))
    return rounded(features)


def _rows(ids: Ids, mask: Ids) -> list[tuple[Ids, int]]:
    return list(zip(ids[1:], map(int, mask[1:].sum(1)), strict=True))


def _by_vectors(cosines: Floats, mask: Ids, weights: Floats) -> npt.NDArray[np.float64]:
    """Mean, rarity-weighted mean and minimum of the query tokens' best cosines; the document tokens' own mean best."""
    best = cosines.max(axis=1)
    back = (cosines.max(axis=2) * mask).sum(1) / np.maximum(mask.sum(1), 1)
    return np.asarray(np.stack([best.mean(1), best @ weights, best.min(1), back], axis=1), np.float64)


def _by_words(terms: Ids, document: Ids, rarity: Floats) -> tuple[float, ...]:
    """BM25 as a share of the most it could be, shares of terms and bigrams that occur, and how early the first does."""
    distinct = np.unique(terms)
    counts = (document[:, None] == distinct).sum(0)
    found, weights = counts > 0, rarity[distinct].astype(np.float64)
    damped = counts / (counts + K1 * (1 - B + B * len(document) / MEAN_TOKENS))
    pairs, document_pairs = _bigrams(terms), _bigrams(document)
    first = int(np.isin(document, distinct).argmax()) / len(document) if found.any() else 1.0
    return (
        float(weights @ damped / weights.sum()),
        float(found.mean()),
        float(weights @ found / weights.sum()),
        len(pairs & document_pairs) / max(1, len(pairs)),
        first,
    )


def _bigrams(ids: Ids) -> set[tuple[int, int]]:
    return set(pairwise(ids.tolist()))
