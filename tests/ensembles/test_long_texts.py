"""Long texts: windows, the calls they go in, and the mean of their vectors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zooserve_ensembles.buckets import BUCKETS, bucket_for
from zooserve_ensembles.long_texts import calls_cut, mean_vector, window_count, windows


@given(st.lists(st.integers(0, 30_000), max_size=300), st.integers(1, 64))
def test_every_token_is_in_exactly_one_window(ids: list[int], size: int) -> None:
    cut = windows(ids, size)
    assert [token for window in cut for token in window] == ids
    assert all(len(window) == size for window in cut[:-1])
    assert len(cut) == window_count(len(ids), size)


def test_a_text_without_tokens_is_one_empty_window() -> None:
    assert windows([], 254) == [[]]


@given(st.lists(st.integers(2, 256), max_size=60), st.integers(1, 8))
def test_a_call_holds_rows_of_one_bucket_and_no_row_is_left_out(lengths: list[int], most_rows: int) -> None:
    calls = list(calls_cut(lengths, BUCKETS, most_rows))
    assert sorted(place for places in calls for place in places) == list(range(len(lengths)))
    for places in calls:
        assert len(places) <= most_rows
        assert len({bucket_for(lengths[place]) for place in places}) == 1


def test_a_vector_counts_by_the_tokens_of_its_window() -> None:
    mean = mean_vector(np.array([[1, 0], [0, 1]], np.float32), [300, 100])
    np.testing.assert_allclose(mean, np.array([3, 1]) / np.sqrt(10), rtol=1e-6)
    assert mean.dtype == np.float32


@pytest.mark.parametrize("tokens", [[7], [0]])
def test_the_mean_of_one_vector_is_that_vector(tokens: list[int]) -> None:
    np.testing.assert_allclose(mean_vector(np.array([[0.6, 0.8]], np.float32), tokens), [0.6, 0.8], rtol=1e-6)


def test_vectors_that_cancel_out_give_finite_numbers() -> None:
    assert np.isfinite(mean_vector(np.array([[1, 0], [-1, 0]], np.float32), [5, 5])).all()
