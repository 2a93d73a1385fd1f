import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zooserve_ensembles.buckets import BUCKETS, bucket_for, padded

ROWS = st.lists(st.lists(st.integers(1, 30_521), max_size=256), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("length", "bucket"), [(0, 16), (1, 16), (16, 16), (17, 32), (128, 128), (129, 256), (256, 256), (9999, 256)]
)
def test_a_length_goes_to_the_smallest_bucket_that_holds_it(length: int, bucket: int) -> None:
    assert bucket_for(length) == bucket


@given(ROWS)
def test_padding_keeps_every_row_and_marks_it(rows: list[list[int]]) -> None:
    ids, mask, tokens = padded(rows)
    for row, row_ids, row_mask, count in zip(rows, ids, mask, tokens[:, 0], strict=True):
        assert row_ids[: len(row)].tolist() == row
        assert not row_ids[len(row) :].any()
        assert row_mask.tolist() == [1] * len(row) + [0] * (len(row_mask) - len(row))
        assert count == len(row)


@given(ROWS)
def test_the_longest_row_chooses_the_bucket(rows: list[list[int]]) -> None:
    ids, mask, tokens = padded(rows)
    assert ids.shape == mask.shape == (len(rows), bucket_for(max(map(len, rows))))
    assert ids.shape[1] in BUCKETS
    assert (ids.dtype, mask.dtype, tokens.dtype, tokens.shape) == (np.int64, np.int64, np.int32, (len(rows), 1))


def test_no_rows_make_an_empty_batch_of_the_smallest_bucket() -> None:
    ids, _, tokens = padded([])
    assert ids.shape == (0, 16)
    assert tokens.shape == (0, 1)


def test_padding_takes_the_model_s_own_buckets_and_id() -> None:
    ids, mask, _ = padded([[5] * 17], buckets=(8, 24), pad_id=1)
    assert ids.tolist() == [[5] * 17 + [1] * 7]
    assert mask.sum() == 17
