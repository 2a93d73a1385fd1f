import numpy as np
import pytest

from evaluation.measures import interval, reciprocal_ranks
from evaluation.rerank import Bm25


def test_a_rank_counts_from_one_and_nothing_beyond_the_depth() -> None:
    scores = [[0.1, 0.9, 0.5], [0.1, 0.9, 0.5], [0.1, 0.9, 0.5]]
    relevant = np.array([[False, True, False], [False, False, True], [True, False, False]])
    assert reciprocal_ranks(scores, relevant, depth=2).tolist() == [1.0, 0.5, 0.0]


def test_of_equal_scores_the_first_found_stays_first() -> None:
    assert reciprocal_ranks([[0.5, 0.5]], np.array([[True, False]])).tolist() == [1.0]


def test_a_question_whose_answer_was_not_found_counts_nothing() -> None:
    assert reciprocal_ranks([[3.0, 2.0]], np.array([[False, False]])).tolist() == [0.0]


def test_the_interval_holds_the_mean_and_is_the_same_each_time() -> None:
    values = np.random.default_rng(1).normal(0.3, 1, 400)
    low, high = interval(values, draws=500)
    assert low < values.mean() < high
    assert (low, high) == interval(values, draws=500)
    assert high - low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.2)


def test_bm25_prefers_the_rarer_word_and_the_shorter_text() -> None:
    words = Bm25(["apples and pears", "apples", "apples of all kinds, apples, apples", "cherries in spring"])
    assert words.scores("the cherries").argmax() == 3
    apples = words.scores("apples", [1, 0, 3])
    assert apples[0] > apples[1] > apples[2] == 0
