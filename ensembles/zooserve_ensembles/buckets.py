"""Buckets: the few lengths that token rows are padded to, so that requests can share a batch."""

from collections.abc import Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

__all__ = ["BUCKETS", "bucket_for", "padded"]

BUCKETS = (16, 32, 64, 128, 256)


def bucket_for(length: int, buckets: Sequence[int] = BUCKETS) -> int:
    """The smallest bucket that holds `length` tokens; the largest for anything longer."""
    return next((bucket for bucket in buckets if length <= bucket), buckets[-1])


def padded(
    rows: Sequence[Sequence[int]], buckets: Sequence[int] = BUCKETS, pad_id: int = 0
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Ids and mask, both [rows, bucket of the longest row], and the tokens of each row as [rows, 1].

    No row may be longer than the largest bucket: truncation is the tokenizer's, which keeps its end token.
    """
    lengths = np.fromiter(map(len, rows), np.int32, len(rows))
    mask = np.arange(bucket_for(int(lengths.max(initial=0)), buckets)) < lengths[:, None]
    ids = np.full(mask.shape, pad_id, np.int64)
    # Row-major, as the rows are chained: one assignment instead of a Python loop per row.
    ids[mask] = np.fromiter(chain.from_iterable(rows), np.int64, int(lengths.sum()))
    return ids, mask.astype(np.int64), lengths[:, None]
