import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zooserve_ensembles.late_interaction import late_interaction_scores
from zooserve_ensembles.ranking_features import FEATURES, rank_features, rounded

CLS, SEP, WORDS = 101, 102, 40
RARITY = np.linspace(0.5, 8, 200).astype(np.float32)
Batch = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float32], npt.NDArray[np.float32]]


def batch(rows: list[list[int]], seed: int = 0, length: int = 32) -> Batch:
    """Rows of word ids with their frame; a word has the same vector wherever it stands."""
    table = np.random.default_rng(seed).normal(size=(200, 16)).astype(np.float32)
    ids = np.zeros((len(rows), length), np.int64)
    mask = np.zeros_like(ids)
    for place, row in enumerate(rows):
        framed = [CLS, *row, SEP]
        ids[place, : len(framed)], mask[place, : len(framed)] = framed, 1
    pooled = np.stack([table[row].sum(0) if row else np.ones(16) for row in rows]).astype(np.float32)
    return ids, mask, table[ids], pooled / np.linalg.norm(pooled, axis=1, keepdims=True)


def features(rows: list[list[int]], **how: int) -> dict[str, npt.NDArray[np.float32]]:
    found = rank_features(*batch(rows, **how), RARITY)
    return {name: found[1:, column] for column, name in enumerate(FEATURES)}


words = st.lists(st.integers(0, WORDS), min_size=1, max_size=12)


@given(words, st.lists(words, min_size=1, max_size=8), st.integers(0, 50))
def test_a_document_has_the_same_features_alone_as_among_others(
    query: list[int], documents: list[list[int]], seed: int
) -> None:
    together = rank_features(*batch([query, *documents], seed), RARITY)
    alone = [rank_features(*batch([query, document], seed, length=16), RARITY)[1] for document in documents]
    # A step of the grid: sums of floats in another order may fall on the other side of a rounding.
    np.testing.assert_allclose(together[1:], np.stack(alone), atol=1.5 / 1024)


@given(words, st.lists(words, min_size=1, max_size=4))
def test_every_value_lies_on_the_grid_that_float32_holds(query: list[int], documents: list[list[int]]) -> None:
    found = rank_features(*batch([query, *documents]), RARITY)
    assert found.dtype == np.float32
    assert (found * 1024 == np.round(found * 1024)).all()
    assert not found[0].any()


def test_cosine_and_maxsim_add_up_to_the_score_of_late_interaction() -> None:
    rows = batch([[1, 2, 3], [3, 2, 9, 9], [7, 8]])
    found = rank_features(*rows, RARITY)
    scores = late_interaction_scores(rows[2], rows[1], rows[3])
    np.testing.assert_allclose(found[1:, 0] + found[1:, 1], scores[1:, 0], atol=1.1 / 1024)


def test_words_are_matched_by_their_ids() -> None:
    found = features([[5, 6, 7, 8], [9, 5, 6, 20], [30, 31]])
    assert found["overlap"].tolist() == [0.5, 0.0]
    assert found["bigrams"].tolist() == pytest.approx([1 / 3, 0.0], abs=1 / 1024)
    assert found["first_match"].tolist() == [0.25, 1.0]
    assert found["query_tokens"].tolist() == [4.0, 4.0]


def test_a_rare_word_counts_for_more_than_a_common_one() -> None:
    found = features([[2, 39], [39, 50], [2, 50]])
    assert found["bm25"][0] > found["bm25"][1] > 0
    assert found["overlap_by_rarity"][0] > found["overlap"][0]


def test_an_empty_query_an_empty_document_and_no_document_give_numbers() -> None:
    assert np.isfinite(rank_features(*batch([[], [1, 2]]), RARITY)).all()
    assert np.isfinite(rank_features(*batch([[1, 2], []]), RARITY)).all()
    assert rank_features(*batch([[1, 2]]), RARITY).shape == (1, len(FEATURES))


def test_zeros_as_in_a_warm_up_give_numbers() -> None:
    zeros = np.zeros((2, 16), np.int64)
    found = rank_features(zeros, zeros, np.zeros((2, 16, 8), np.float32), np.zeros((2, 8), np.float32), RARITY)
    assert np.isfinite(found).all()


def test_rounding_goes_to_the_nearest_of_1024_steps() -> None:
    assert rounded([0.0, 0.00051, -1.00049]).tolist() == [0.0, 1 / 1024, -1 - 1 / 1024]
