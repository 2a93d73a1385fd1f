import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from zooserve_ensembles.late_interaction import late_interaction_scores


def naive_scores(
    tokens: npt.NDArray[np.float32], mask: npt.NDArray[np.int64], pooled: npt.NDArray[np.float32]
) -> list[float]:
    """The definition, one pair of tokens at a time, in float64."""
    wide = tokens.astype(np.float64)
    query = [wide[0, place] for place in range(1, int(mask[0].sum()) - 1)]
    scores = [0.0]
    for row in range(1, len(tokens)):
        score = float(pooled[0].astype(np.float64) @ pooled[row])
        best = [
            max(_cosine(word, wide[row, place]) for place in range(mask.shape[1]) if mask[row, place]) for word in query
        ]
        scores.append(score + (sum(best) / len(best) if best else 0.0))
    return scores


def _cosine(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> float:
    return float(one @ other / (np.linalg.norm(one) * np.linalg.norm(other)))


Batch = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], npt.NDArray[np.float32]]


def batch(lengths: list[int], length: int, seed: int) -> Batch:
    rng = np.random.default_rng(seed)
    tokens = rng.normal(size=(len(lengths), length, 8)).astype(np.float32)
    pooled = rng.normal(size=(len(lengths), 8)).astype(np.float32)
    mask = (np.arange(length) < np.array(lengths)[:, None]).astype(np.int64)
    return tokens, mask, pooled / np.linalg.norm(pooled, axis=1, keepdims=True)


@given(st.lists(st.integers(2, 16), min_size=1, max_size=6), st.integers(0, 1000))
def test_scores_are_the_definition_computed_fast(lengths: list[int], seed: int) -> None:
    tokens, mask, pooled = batch(lengths, 16, seed)
    scores = late_interaction_scores(tokens, mask, pooled)
    assert scores.shape == (len(lengths), 1)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores[:, 0], naive_scores(tokens, mask, pooled), atol=1e-5)


def test_what_lies_in_the_padding_changes_nothing() -> None:
    tokens, mask, pooled = batch([5, 9, 3], 16, 1)
    noisy = np.where(mask[:, :, None] > 0, tokens, np.float32(1e4))
    np.testing.assert_allclose(
        late_interaction_scores(noisy, mask, pooled), late_interaction_scores(tokens, mask, pooled), atol=1e-6
    )


def test_an_empty_query_scores_by_its_pooled_vector_alone() -> None:
    tokens, mask, pooled = batch([2, 9], 16, 2)
    assert late_interaction_scores(tokens, mask, pooled)[1, 0] == pooled[0] @ pooled[1]


def test_a_query_without_documents_has_no_scores_to_give() -> None:
    assert late_interaction_scores(*batch([6], 16, 3)).tolist() == [[0.0]]


def test_zero_vectors_as_in_a_warm_up_give_numbers() -> None:
    zeros = late_interaction_scores(
        np.zeros((2, 16, 8), np.float32), np.zeros((2, 16), np.int64), np.zeros((2, 8), np.float32)
    )
    assert np.isfinite(zeros).all()
