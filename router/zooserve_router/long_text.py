"""Texts longer than the model reads, for requests that opt in: which they are, and the Triton requests they go in."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from zooserve.catalogue import LongText, Model
from zooserve.errors import InputTooLong, Unsupported
from zooserve.triton.tensors import text_tensor
from zooserve_ensembles.long_texts import CHARACTERS_PER_TOKEN, window_count
from zooserve_router.dispatch import Chunk
from zooserve_router.vocabulary import Vocabulary, token_counts

__all__ = ["LONG_OUTPUTS", "Averaged", "Split", "long_chunks", "required", "split"]

LONG_OUTPUTS = ("embedding", "tokens", "chunks")
# Triton joins requests while the stage works, so one of several texts only saves the exchange of small ones.
_ROWS = 8


@dataclass(frozen=True)
class Averaged:
    """How many texts got a mean vector, and over how many windows together."""

    texts: int
    chunks: int


@dataclass(frozen=True)
class Split:
    """The places of texts that fit the model, and the tokens, by place, of those that do not."""

    short: Sequence[int]
    long: Mapping[int, int]
    windows: int
    """Rows that the encoder runs for all of them together."""


def required(model: Model) -> LongText:
    """The model's way with long texts. Raises Unsupported where it has none."""
    if model.long_text is None:
        raise Unsupported(
            f"{model.name} has no way with texts of more than {model.limits.max_tokens} tokens: leave `long_text` out "
            "and split them.",
            param="long_text",
        )
    return model.long_text


async def split(vocabulary: Vocabulary, model: Model, texts: Sequence[str], params: Sequence[str]) -> Split:
    """Tell long texts from short ones. Raises InputTooLong for one that is too long even for this way."""
    most = required(model).max_tokens
    counts = await token_counts(vocabulary, model, texts, params, most)
    long = {place: tokens for place, tokens in counts.items() if tokens > model.limits.max_tokens}
    for place in long:
        if len(texts[place]) > most * CHARACTERS_PER_TOKEN:
            raise InputTooLong(
                f"`{params[place]}` has {len(texts[place])} characters; a long text may have "
                f"{most * CHARACTERS_PER_TOKEN}.",
                param=params[place],
            )
    size = model.limits.max_tokens - vocabulary.frame_tokens
    short = [place for place in range(len(texts)) if place not in long]
    windows = len(short) + sum(window_count(tokens - vocabulary.frame_tokens, size) for tokens in long.values())
    return Split(short, long, windows)


def long_chunks(texts: Sequence[str], long: Mapping[int, int], most_tokens: int) -> tuple[Chunk, ...]:
    """Requests of a few long texts each, that have at most `most_tokens` together; `places` are those in `long`."""
    order = {place: position for position, place in enumerate(long)}
    return tuple(
        Chunk(
            inputs=(text_tensor("text", [texts[place] for place in places]),),
            places=[order[place] for place in places],
            tokens=sum(long[place] for place in places),
        )
        for places in _cut(long, most_tokens)
    )


def _cut(long: Mapping[int, int], most_tokens: int) -> Iterator[list[int]]:
    group: list[int] = []
    for place, tokens in long.items():
        if group and (len(group) == _ROWS or sum(long[other] for other in group) + tokens > most_tokens):
            yield group
            group = []
        group.append(place)
    if group:
        yield group
