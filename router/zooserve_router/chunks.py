"""Cutting a list of texts or token rows into the requests that Triton sees. Pure functions."""

from collections.abc import Iterator, Sequence

import numpy as np

from zooserve.triton.tensors import text_tensor, token_tensor
from zooserve_router.dispatch import Chunk

__all__ = ["estimated_tokens", "places_cut", "text_chunks", "token_chunks"]

_SPECIAL_TOKENS = 2
_BYTES_PER_TOKEN = 4  # English prose has 4.5; short words and names less


def estimated_tokens(text: str, max_tokens: int) -> int:
    """About how many tokens a model of this limit reads of the text: for admission, not for bills."""
    return min(max_tokens, _SPECIAL_TOKENS + -(-len(text) // _BYTES_PER_TOKEN))


def text_chunks(texts: Sequence[str], max_tokens: int, rows: int) -> tuple[Chunk, ...]:
    """At most `rows` texts a chunk, of similar length, so that little of a batch is padding."""
    return tuple(
        Chunk(
            inputs=(text_tensor("text", [texts[place] for place in places]),),
            places=places,
            tokens=sum(estimated_tokens(texts[place], max_tokens) for place in places),
        )
        for places in places_cut(texts, rows)
    )


def places_cut(texts: Sequence[str], rows: int) -> Iterator[Sequence[int]]:
    """The places of the texts, shortest text first, at most `rows` at a time."""
    return _cut(sorted(range(len(texts)), key=lambda place: len(texts[place])), rows)


def token_chunks(token_rows: Sequence[Sequence[int]], buckets: Sequence[int], rows: int) -> tuple[Chunk, ...]:
    """Chunks of one bucket each, padded to it. Every row must fit the largest bucket."""
    of_bucket: dict[int, list[int]] = {}
    for place, row in enumerate(token_rows):
        of_bucket.setdefault(next(bucket for bucket in buckets if bucket >= len(row)), []).append(place)
    return tuple(
        _token_chunk(token_rows, places, bucket)
        for bucket, members in sorted(of_bucket.items())
        for places in _cut(members, rows)
    )


def _token_chunk(token_rows: Sequence[Sequence[int]], places: Sequence[int], bucket: int) -> Chunk:
    ids = np.zeros((len(places), bucket), dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, place in enumerate(places):
        length = len(token_rows[place])
        ids[row, :length] = token_rows[place]
        mask[row, :length] = 1
    return Chunk(
        inputs=(token_tensor("input_ids", ids), token_tensor("attention_mask", mask)),
        places=places,
        tokens=int(mask.sum()),
    )


def _cut(places: Sequence[int], rows: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(places), rows):
        yield places[start : start + rows]
