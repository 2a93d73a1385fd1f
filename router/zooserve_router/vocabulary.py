"""A model's tokenizer as the router needs it: to count tokens exactly, to check and frame callers' ids."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from tokenizers import Tokenizer

from zooserve.catalogue import Catalogue, Model
from zooserve.errors import BackendUnavailable, InputTooLong

__all__ = ["Vocabulary", "known_vocabulary", "load_vocabularies", "refuse_too_long"]

# About 2 ms of tokenizing; more goes to a thread (the tokenizer lets go of the GIL), so that others are not held up.
_INLINE_BYTES = 8192


class Vocabulary:
    """One tokenizer, without the truncation and padding that its file may ask for."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        frame = tokenizer.encode("").ids
        self.size = tokenizer.get_vocab_size()
        self.first_id, self.last_id = frame[0], frame[-1]
        self.frame_tokens = len(frame)

    @classmethod
    def from_file(cls, path: Path) -> "Vocabulary":
        """The vocabulary of a tokenizer.json."""
        return cls(Tokenizer.from_file(str(path)))

    async def counts(self, texts: Sequence[str]) -> list[int]:
        """The exact number of tokens of each text, special ones included."""
        if sum(map(len, texts)) <= _INLINE_BYTES:
            return self._counts(texts)
        return await asyncio.to_thread(self._counts, texts)

    def framed(self, ids: Sequence[int]) -> list[int]:
        """The ids between the model's first and last special token, added where they are missing."""
        first = [] if ids[0] == self.first_id else [self.first_id]
        last = [] if ids[-1] == self.last_id else [self.last_id]
        return [*first, *ids, *last]

    def cut(self, text: str, max_tokens: int) -> str:
        """The text up to the last of that many tokens, special ones not counted."""
        offsets = self._tokenizer.encode(text, add_special_tokens=False).offsets
        return text if len(offsets) <= max_tokens else text[: offsets[max_tokens - 1][1]]

    def _counts(self, texts: Sequence[str]) -> list[int]:
        return [len(encoding) for encoding in self._tokenizer.encode_batch_fast(list(texts))]


def load_vocabularies(catalogue: Catalogue, repository: Path) -> Mapping[str, Vocabulary]:
    """The vocabulary of every zoo model whose file is there; a missing one shows in that model's readiness."""
    files = {
        model.name: repository / model.tokenizer
        for model in catalogue
        if model.runs_on == "zoo" and model.tokenizer is not None
    }
    return {name: Vocabulary.from_file(path) for name, path in files.items() if path.is_file()}


def known_vocabulary(vocabularies: Mapping[str, Vocabulary], model: Model) -> Vocabulary:
    """The model's vocabulary. Raises BackendUnavailable where its file was not there at start."""
    if model.name not in vocabularies:
        raise BackendUnavailable(
            f"{model.name} is not ready: its tokenizer is missing; run `zooserve fetch` and restart.", param="model"
        )
    return vocabularies[model.name]


async def refuse_too_long(vocabulary: Vocabulary, model: Model, texts: Sequence[str], params: Sequence[str]) -> None:
    """Raises InputTooLong if a text (`params` are their names) or all together have more tokens than the model takes.

    No token is shorter than a byte, so texts of few bytes are known to fit without being counted.
    """
    limits = model.limits
    room = limits.max_tokens - vocabulary.frame_tokens
    suspects = [place for place, text in enumerate(texts) if len(text) * 4 > room and len(text.encode()) > room]
    if len(texts) * limits.max_tokens > limits.max_request_tokens:
        suspects = list(range(len(texts)))
    if not suspects:
        return
    counts = await vocabulary.counts([texts[place] for place in suspects])
    for place, tokens in zip(suspects, counts, strict=True):
        if tokens > limits.max_tokens:
            raise InputTooLong(
                f"`{params[place]}` has {tokens} tokens and {model.name} reads at most {limits.max_tokens}. "
                "Split it into shorter texts.",
                param=params[place],
            )
    if sum(counts) > limits.max_request_tokens:
        raise InputTooLong(
            f"The texts have {sum(counts)} tokens together; one request takes {limits.max_request_tokens}. "
            "Send them in several requests.",
            param=params[0].partition("[")[0],
        )
