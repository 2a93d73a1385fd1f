"""Cutting a list of texts or token rows into the requests that Triton sees. Pure functions."""

from collections.abc import Iterator, Sequence

import numpy as np

from zooserve.catalogue import Model, SloClass
from zooserve.triton.tensors import text_tensor, token_tensor
from zooserve_router.dispatch import Chunk

__all__ = ["estimated_tokens", "places_cut", "text_chunks", "token_chunks"]

# A token of padding costs the encoder 0.13 ms on a core (32 of them 4.2 ms), another request about 5 ms.
_PADDING_WORTH_A_REQUEST = 64
_SPECIAL_TOKENS = 2
_BYTES_PER_TOKEN = 4  # English prose has 4.5; short words and names less


def estimated_tokens(text: str, max_tokens: int) -> int:
    """About how many tokens a model of this limit reads of the text: for admission, not for bills."""
    return min(max_tokens, _SPECIAL_TOKENS + -(-len(text) // _BYTES_PER_TOKEN))


def text_chunks(texts: Sequence[str], model: Model, slo_class: SloClass) -> tuple[Chunk, ...]:
    """Chunks of texts of similar length, so that little of a batch is padding."""
    return tuple(
        Chunk(
            inputs=(text_tensor("text", [texts[place] for place in places]),),
            places=places,
            tokens=sum(estimated_tokens(texts[place], model.limits.max_tokens) for place in places),
        )
        for places in places_cut(texts, model, slo_class)
    )


def places_cut(
    texts: Sequence[str], model: Model, slo_class: SloClass, leading: str | None = None
) -> Iterator[Sequence[int]]:
    """The places of the texts, shortest text first, cut into chunks; a `leading` text is a row of every chunk.

    A chunk has at most the model's rows and, padded, the class's tokens; a text beyond them goes alone. Triton pads a
    request to the bucket of its longest text, so a longer bucket begins a new chunk too where padding the shorter texts
    up to it would cost more than another request does.
    """
    max_tokens = model.limits.max_tokens
    led = 0 if leading is None else 1
    shortest = _bucket(estimated_tokens(leading, max_tokens), model.buckets) if leading is not None else 0
    budget = model.chunk_tokens.of(slo_class)
    chunk: list[int] = []
    own_lengths = 0
    for place in sorted(range(len(texts)), key=lambda place: len(texts[place])):
        length = max(shortest, _bucket(estimated_tokens(texts[place], max_tokens), model.buckets))
        rows = led + len(chunk) + 1
        padding = len(chunk) * length - own_lengths
        if chunk and (rows > model.chunk_rows or rows * length > budget or padding > _PADDING_WORTH_A_REQUEST):
            yield chunk
            chunk, own_lengths = [], 0
        chunk.append(place)
        own_lengths += length
    if chunk:
        yield chunk


def _bucket(tokens: int, buckets: Sequence[int]) -> int:
    return next((bucket for bucket in buckets if bucket >= tokens), tokens if not buckets else buckets[-1])


def token_chunks(token_rows: Sequence[Sequence[int]], model: Model, slo_class: SloClass) -> tuple[Chunk, ...]:
    """Chunks of one bucket each, padded to it, within the class's tokens. Every row must fit the largest bucket."""
    budget = model.chunk_tokens.of(slo_class)
    of_bucket: dict[int, list[int]] = {}
    for place, row in enumerate(token_rows):
        of_bucket.setdefault(_bucket(len(row), model.buckets), []).append(place)
    return tuple(
        _token_chunk(token_rows, places, bucket)
        for bucket, members in sorted(of_bucket.items())
        for places in _cut(members, max(1, min(model.chunk_rows, budget // bucket)))
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
