"""Late interaction: how well each document answers a query, from token vectors (MaxSim) and pooled ones."""

import numpy as np
import numpy.typing as npt

__all__ = ["Floats", "late_interaction_scores", "token_cosines", "unit"]

Floats = npt.NDArray[np.float32]
TINY = np.float32(1e-12)


def late_interaction_scores(tokens: Floats, mask: npt.NDArray[np.int64], pooled: Floats) -> Floats:
    """Scores [rows, 1] of the documents in rows 1.. against the query in row 0, whose own score is 0.

    `tokens` [rows, length, size] are raw token vectors, `mask` [rows, length] is 1 for a prefix of each row, `pooled`
    [rows, size] has unit length. A score is the cosine of the pooled vectors plus, averaged over the query's tokens
    without its first and last (CLS and SEP), the best cosine with any token of the document.
    """
    query = unit(tokens[0, 1 : max(1, int(mask[0].sum()) - 1)])
    scores = np.zeros((len(tokens), 1), np.float32)
    scores[1:, 0] = pooled[1:] @ pooled[0] + _mean_best_cosine(query, tokens[1:], mask[1:])
    return scores


def token_cosines(query: Floats, documents: Floats, mask: npt.NDArray[np.int64]) -> Floats:
    """Cosines [documents, length, query tokens]; -1 where a document's row is padding. `query` has unit length."""
    # The document's norms divide its dot products, not its vectors: length x query numbers instead of length x size.
    norms = np.maximum(np.sqrt(np.einsum("nls,nls->nl", documents, documents)), TINY)
    cosines = (documents @ query.T) / norms[:, :, None]
    return np.where(mask[:, :, None] > 0, cosines, np.float32(-1))


def unit(vectors: Floats) -> Floats:
    """The vectors with length 1; a zero vector stays one."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), TINY), np.float32)


def _mean_best_cosine(query: Floats, documents: Floats, mask: npt.NDArray[np.int64]) -> Floats:
    if not len(query) or not len(documents):
        return np.zeros(len(documents), np.float32)
    length = max(1, int(mask.sum(1).max()))
    best = token_cosines(query, documents[:, :length], mask[:, :length]).max(axis=1)
    return np.asarray(best.mean(axis=1), np.float32)
