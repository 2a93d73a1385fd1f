"""Texts or token ids to vectors, in the caller's order."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from zooserve.catalogue import Model, SloClass
from zooserve.errors import BadInput, InputTooLong, Unsupported
from zooserve.triton.tensors import InferenceAnswer
from zooserve_router.chunks import text_chunks, token_chunks
from zooserve_router.context import RequestContext
from zooserve_router.dispatch import OUTPUTS, Job, ZooDispatch, scattered, slo_class_of, tokens_read
from zooserve_router.long_text import LONG_OUTPUTS, Averaged, Split, long_chunks, required, split
from zooserve_router.vocabulary import Vocabulary, known, refuse_too_long

__all__ = ["Embedder", "Embeddings", "TextInputs", "TokenInputs"]


@dataclass(frozen=True)
class TextInputs:
    """Texts to embed, each with the name that an error calls it by."""

    texts: Sequence[str]
    params: Sequence[str]

    def after(self, prompt: str) -> "TextInputs":
        """The same with a prompt before every text: what the model was trained to see there."""
        return replace(self, texts=[prompt + text for text in self.texts]) if prompt else self


@dataclass(frozen=True)
class TokenInputs:
    """Rows of token ids to embed, each with the name that an error calls it by."""

    rows: Sequence[Sequence[int]]
    params: Sequence[str]


@dataclass(frozen=True)
class Embeddings:
    """One vector per input, and how many tokens they have, special ones counted once per input."""

    vectors: npt.NDArray[np.float32]
    tokens: int
    averaged: Averaged | None = None
    """What became of long texts, where the request opted in."""


class Embedder:
    """Embeds with any `embed` model of the catalogue."""

    def __init__(
        self, dispatch: ZooDispatch, vocabularies: Mapping[str, Vocabulary], interactive_max_items: int
    ) -> None:
        self._dispatch = dispatch
        self._vocabularies = vocabularies
        self._interactive_max_items = interactive_max_items

    async def embed(self, model: Model, inputs: TextInputs | TokenInputs, context: RequestContext) -> Embeddings:
        """The inputs' vectors, in their order. Raises InputTooLong or BadInput before anything is sent."""
        vocabulary = known(self._vocabularies, model)
        slo_class = slo_class_of(context, len(inputs.params), self._interactive_max_items)
        if isinstance(inputs, TextInputs):
            return await self._embed_texts(model, inputs, vocabulary, slo_class, context)
        return await self._embed_tokens(model, inputs, vocabulary, slo_class, context)

    async def embed_any_length(self, model: Model, inputs: TextInputs, context: RequestContext) -> Embeddings:
        """The same for texts of which some may be longer than the model reads: those get the mean of their windows.

        Short ones go the ordinary way, so their vectors are the same as without long ones beside them.
        """
        found = await split(known(self._vocabularies, model), model, inputs.texts, inputs.params)
        slo_class = slo_class_of(context, found.windows, self._interactive_max_items)
        vectors = np.empty((len(inputs.texts), model.dimensions or 0), np.float32)
        done: list[InferenceAnswer] = []
        for places, job in _parts(model, inputs.texts, found, slo_class):
            answers = await self._dispatch.run(job, context)
            vectors[places] = scattered(job, answers, "embedding")
            done += answers
        tokens = context.record.input_tokens = tokens_read(done)
        chunks = sum(int(answer.outputs["chunks"].sum()) for answer in done if "chunks" in answer.outputs)
        return Embeddings(vectors, tokens, Averaged(len(found.long), chunks))

    async def _embed_texts(
        self, model: Model, inputs: TextInputs, vocabulary: Vocabulary, slo_class: SloClass, context: RequestContext
    ) -> Embeddings:
        await refuse_too_long(vocabulary, model, inputs.texts, inputs.params)
        chunks = text_chunks(inputs.texts, model, slo_class)
        job = Job(model, model.triton_model(slo_class), slo_class, OUTPUTS["embed"], chunks)
        answers = await self._dispatch.run(job, context)
        tokens = tokens_read(answers)
        return self._embeddings(job, answers, "embedding", tokens, context)

    async def _embed_tokens(
        self, model: Model, inputs: TokenInputs, vocabulary: Vocabulary, slo_class: SloClass, context: RequestContext
    ) -> Embeddings:
        encoder = model.encoder_model(slo_class)
        if encoder is None:
            raise Unsupported(f"{model.name} takes text only, no token ids.", param="input")
        rows = _framed(model, inputs, vocabulary)
        job = Job(model, encoder, slo_class, ("sentence_embedding",), token_chunks(rows, model, slo_class))
        answers = await self._dispatch.run(job, context)
        return self._embeddings(job, answers, "sentence_embedding", sum(map(len, rows)), context)

    def _embeddings(
        self, job: Job, answers: Sequence[InferenceAnswer], output: str, tokens: int, context: RequestContext
    ) -> Embeddings:
        context.record.input_tokens = tokens
        return Embeddings(scattered(job, answers, output), tokens)


def _parts(
    model: Model, texts: Sequence[str], found: Split, slo_class: SloClass
) -> Iterator[tuple[Sequence[int], Job]]:
    """The places of the short and of the long texts, each with its job, where there are any."""
    if found.short:
        chunks = text_chunks([texts[place] for place in found.short], model, slo_class)
        yield found.short, Job(model, model.triton_model(slo_class), slo_class, OUTPUTS["embed"], chunks)
    if found.long:
        long_text = required(model)
        chunks = long_chunks(texts, found.long, long_text.max_tokens)
        job = Job(model, long_text.triton_model(slo_class), slo_class, LONG_OUTPUTS, chunks, vital=False)
        yield list(found.long), job


def _framed(model: Model, inputs: TokenInputs, vocabulary: Vocabulary) -> list[list[int]]:
    return [_framed_row(model, row, param, vocabulary) for row, param in zip(inputs.rows, inputs.params, strict=True)]


def _framed_row(model: Model, row: Sequence[int], param: str, vocabulary: Vocabulary) -> list[int]:
    if min(row) < 0 or max(row) >= vocabulary.size:
        stray = next(token for token in row if not 0 <= token < vocabulary.size)
        raise BadInput(
            f"`{param}` contains token {stray}; the vocabulary of {model.name} has ids 0 to {vocabulary.size - 1}. "
            "Tokens of another model's tokenizer mean nothing to it: send text "
            "(LangChain's OpenAIEmbeddings: check_embedding_ctx_length=False).",
            param=param,
        )
    framed = vocabulary.framed(row)
    if len(framed) > model.limits.max_tokens:
        raise InputTooLong(
            f"`{param}` has {len(framed)} tokens and {model.name} reads at most {model.limits.max_tokens}.",
            param=param,
        )
    return framed
