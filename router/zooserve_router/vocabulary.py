"""A model's tokenizer as the router needs it: to count tokens exactly, to check and frame callers' ids."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from tokenizers import Tokenizer
from tokenizers.normalizers import BertNormalizer

from zooserve.catalogue import Catalogue, Model
from zooserve.errors import BackendUnavailable, InputTooLong
from zooserve_ensembles import vocabulary as words

__all__ = [
    "TokenCounter",
    "Vocabulary",
    "WordList",
    "known",
    "load_vocabularies",
    "load_word_lists",
    "refuse_too_long",
    "token_counts",
]

# About 2 ms of tokenizing; more goes to a thread (the tokenizer lets go of the GIL), so that others are not held up.
_INLINE_CHARACTERS = 8192
# Tokenizing takes about 150 bytes of memory per character: a body of 8 MB at once would take more than a gigabyte.
_SLICE_CHARACTERS = 65_536

T = TypeVar("T")
_log = logging.getLogger(__name__)


class TokenCounter(Protocol):
    """What counts a model's tokens."""

    @property
    def frame_tokens(self) -> int:
        """Tokens that every text has besides its own."""
        ...

    @property
    def tokens_per_byte(self) -> int:
        """No text has more of them than this, the frame left out."""
        ...

    def counts(self, texts: Sequence[str]) -> list[int]:
        """The exact number of tokens of each text, the frame included."""
        ...


class Vocabulary:
    """One tokenizer, without the truncation and padding that its file may ask for."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        frame = tokenizer.encode("").ids
        self.size = tokenizer.get_vocab_size()
        self.first_id, self.last_id = frame[0], frame[-1]
        self._frame_tokens = len(frame)
        self._lengthens = not isinstance(tokenizer.normalizer, BertNormalizer | None)

    @property
    def frame_tokens(self) -> int:
        """Special tokens around a text."""
        return self._frame_tokens

    @property
    def tokens_per_byte(self) -> int:
        """BERT's normalisation makes no text longer; XLM-R's does: its worst character has 41 tokens in 24 bytes."""
        return 2 if self._lengthens else 1

    @classmethod
    def from_file(cls, path: Path) -> "Vocabulary":
        """The vocabulary of a tokenizer.json."""
        return cls(Tokenizer.from_file(str(path)))

    def counts(self, texts: Sequence[str]) -> list[int]:
        """The exact number of tokens of each text, special ones included."""
        return [len(encoding) for encoding in self._tokenizer.encode_batch_fast(list(texts))]

    def framed(self, ids: Sequence[int]) -> list[int]:
        """The ids between the model's first and last special token, added where they are missing."""
        first = [] if ids[0] == self.first_id else [self.first_id]
        last = [] if ids[-1] == self.last_id else [self.last_id]
        return [*first, *ids, *last]

    async def cut(self, texts: Sequence[str], max_tokens: int) -> list[str]:
        """Each text up to the last of that many tokens, special ones not counted."""
        cut = []
        for text in texts:
            if len(text) <= max_tokens:
                cut.append(text)
            else:
                cut.append(await _off_the_loop(len(text), partial(self._cut, text, max_tokens)))
        return cut

    def _cut(self, text: str, max_tokens: int) -> str:
        for beginning in (text[:_SLICE_CHARACTERS], text):
            offsets = self._tokenizer.encode(beginning, add_special_tokens=False).offsets
            if len(offsets) > max_tokens:
                return text[: offsets[max_tokens - 1][1]]
        return text


class WordList:
    """A model whose tokens are the words it knows."""

    def __init__(self, known_words: words.Vocabulary) -> None:
        self._known_words = known_words

    @property
    def frame_tokens(self) -> int:
        """None."""
        return 0

    @property
    def tokens_per_byte(self) -> int:
        """A word has a byte at least."""
        return 1

    @classmethod
    def from_file(cls, path: Path) -> "WordList":
        """The word list of a vocabulary.json."""
        return cls(words.load_vocabulary(path))

    def counts(self, texts: Sequence[str]) -> list[int]:
        """How many words of each text the model knows."""
        return [len(self._known_words.ids(text)) for text in texts]


def load_vocabularies(catalogue: Catalogue, repository: Path) -> Mapping[str, Vocabulary]:
    """The vocabularies of the zoo's transformers; one that is missing or broken shows in that model's readiness."""
    models = [model for model in catalogue if model.runs_on == "zoo" and not _has_word_list(model)]
    return dict(_loaded(models, repository, Vocabulary.from_file))


def load_word_lists(catalogue: Catalogue, repository: Path) -> Mapping[str, WordList]:
    """The word lists of the models that have one instead, in the same way."""
    return dict(_loaded(list(filter(_has_word_list, catalogue)), repository, WordList.from_file))


def _has_word_list(model: Model) -> bool:
    return model.tokenizer is not None and model.tokenizer.endswith("/vocabulary.json")


def _loaded(models: Sequence[Model], repository: Path, load: Callable[[Path], T]) -> Iterator[tuple[str, T]]:
    for model in models:
        if model.tokenizer is not None:
            try:
                yield model.name, load(repository / model.tokenizer)
            except Exception as fault:  # the tokenizers library raises nothing narrower
                _log.warning("%s: %s cannot be used: %s", model.name, model.tokenizer, fault)


def known(counters: Mapping[str, T], model: Model) -> T:
    """The model's own. Raises BackendUnavailable where its file could not be used at start."""
    if model.name not in counters:
        raise BackendUnavailable(
            f"{model.name} is not ready: {model.tokenizer} is missing or broken; run `zooserve fetch` and restart.",
            param="model",
        )
    return counters[model.name]


async def refuse_too_long(counter: TokenCounter, model: Model, texts: Sequence[str], params: Sequence[str]) -> None:
    """Raises InputTooLong if a text (`params` names them) or all together have more tokens than the model takes."""
    await token_counts(counter, model, texts, params, model.limits.max_tokens)


async def token_counts(
    counter: TokenCounter, model: Model, texts: Sequence[str], params: Sequence[str], most: int
) -> dict[int, int]:
    """The tokens, by place, of every text that may have more than the model reads.

    Texts of so few bytes that they must fit are not counted. Raises InputTooLong if one has more than `most`, or all
    together more than one request takes.
    """
    limits = model.limits
    room = (limits.max_tokens - counter.frame_tokens) // counter.tokens_per_byte
    suspects = [place for place, text in enumerate(texts) if len(text) * 4 > room and len(text.encode()) > room]
    if len(texts) * most > limits.max_request_tokens:
        suspects = list(range(len(texts)))
    found: dict[int, int] = {}
    for places in _slices(suspects, texts):
        counts = await _counted(counter, [texts[place] for place in places], most)
        for place, tokens in zip(places, counts, strict=True):
            if tokens > most:
                raise _too_long(model, texts[place], params[place], tokens, most)
            found[place] = tokens
    total = sum(found.values())
    if total > limits.max_request_tokens:
        raise InputTooLong(
            f"The texts have {total} tokens together; one request takes {limits.max_request_tokens}. "
            "Send them in several requests.",
            param=params[0].partition("[")[0],
        )
    return found


def _slices(places: Sequence[int], texts: Sequence[str]) -> Iterator[list[int]]:
    """The places in groups whose texts are bounded together."""
    group: list[int] = []
    characters = 0
    for place in places:
        if group and characters + len(texts[place]) > _SLICE_CHARACTERS:
            yield group
            group, characters = [], 0
        group.append(place)
        characters += len(texts[place])
    if group:
        yield group


async def _counted(counter: TokenCounter, texts: Sequence[str], limit: int) -> list[int]:
    """The number of tokens of each text; of a very long one only as many as show that it is over the limit."""
    beginnings = [text[:_SLICE_CHARACTERS] for text in texts]
    counts = await _off_the_loop(sum(map(len, beginnings)), lambda: counter.counts(beginnings))
    if max(counts) <= limit and beginnings != list(texts):  # a very long text of few tokens
        return await _off_the_loop(sum(map(len, texts)), lambda: counter.counts(texts))
    return counts


def _too_long(model: Model, text: str, param: str, tokens: int, most: int) -> InputTooLong:
    about = "" if len(text) <= _SLICE_CHARACTERS else "more than "
    advice = "Split it into shorter texts"
    if model.long_text is not None and most < model.long_text.max_tokens:
        advice += f', or send `long_text: "mean"` for the mean vector of a text of up to {model.long_text.max_tokens}'
    return InputTooLong(
        f"`{param}` has {about}{tokens} tokens and {model.name} reads at most {most}. {advice}.", param=param
    )


async def _off_the_loop(characters: int, work: Callable[[], T]) -> T:
    return work() if characters <= _INLINE_CHARACTERS else await asyncio.to_thread(work)
