"""Texts longer than an encoder reads: cut into windows of tokens, whose vectors are averaged into one."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from zooserve_ensembles.buckets import bucket_for

__all__ = ["CHARACTERS_PER_TOKEN", "calls_cut", "mean_vector", "window_count", "windows"]

CHARACTERS_PER_TOKEN = 16
"""A text may have this many characters per token allowed. Prose has 4.5; what is far above is mostly blanks, and
tokenizing takes 150 bytes of memory per character."""

_TINY = 1e-12


def windows(ids: Sequence[int], size: int) -> list[Sequence[int]]:
    """Consecutive windows of `size` tokens, the last one shorter; a text without tokens is one empty window.

    They do not overlap: each token is in exactly one window, so that weights by length count none of them twice.
    """
    return [ids[start : start + size] for start in range(0, len(ids), size)] or [ids]


def window_count(tokens: int, size: int) -> int:
    """How many windows a text of that many own tokens has."""
    return max(1, -(-tokens // size))


def calls_cut(lengths: Sequence[int], buckets: Sequence[int], most_rows: int) -> Iterator[list[int]]:
    """The places of rows that go to the encoder in one call: rows of one bucket, at most `most_rows` of them."""
    of_bucket: dict[int, list[int]] = {}
    for place, length in enumerate(lengths):
        of_bucket.setdefault(bucket_for(length, buckets), []).append(place)
    for members in of_bucket.values():
        for start in range(0, len(members), most_rows):
            yield members[start : start + most_rows]


def mean_vector(vectors: npt.NDArray[np.float32], tokens: Sequence[int]) -> npt.NDArray[np.float32]:
    """The vectors' mean, each weighted by the tokens of its window, at unit length."""
    weights = np.maximum(np.asarray(tokens, np.float64), _TINY)
    mean = weights @ vectors.astype(np.float64) / weights.sum()
    return np.asarray(mean / max(float(np.linalg.norm(mean)), _TINY), np.float32)
