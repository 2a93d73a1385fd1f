"""Texts to sparse vectors: a weight for each of a few words of the model's vocabulary."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from zooserve.catalogue import Model
from zooserve_router.chunks import text_chunks
from zooserve_router.context import RequestContext
from zooserve_router.dispatch import OUTPUTS, Job, ZooDispatch, scattered, slo_class_of, tokens_read
from zooserve_router.embedding import TextInputs
from zooserve_router.vocabulary import Vocabulary, known, refuse_too_long

__all__ = ["SparseEmbedder", "SparseVector"]


@dataclass(frozen=True)
class SparseVector:
    """The words that have a weight, by their ids, ascending: what Qdrant's SparseVector and TEI's clients take."""

    indices: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]


class SparseEmbedder:
    """Embeds with any `sparse` model of the catalogue."""

    def __init__(
        self, dispatch: ZooDispatch, vocabularies: Mapping[str, Vocabulary], interactive_max_items: int
    ) -> None:
        self._dispatch = dispatch
        self._vocabularies = vocabularies
        self._interactive_max_items = interactive_max_items

    async def embed(
        self, model: Model, inputs: TextInputs, context: RequestContext, *, truncate: bool
    ) -> Sequence[SparseVector]:
        """The inputs' vectors, in their order. Raises InputTooLong, unless longer texts are to be truncated."""
        vocabulary = known(self._vocabularies, model)
        texts = inputs.texts
        if truncate:
            texts = await vocabulary.cut(texts, model.limits.max_tokens - vocabulary.frame_tokens)
        await refuse_too_long(vocabulary, model, texts, inputs.params)
        slo_class = slo_class_of(context, len(texts), self._interactive_max_items)
        chunks = text_chunks(texts, model, slo_class)
        job = Job(model, model.triton_model(slo_class), slo_class, OUTPUTS["sparse"], chunks)
        answers = await self._dispatch.run(job, context)
        context.record.input_tokens = tokens_read(answers)
        return list(_by_index(scattered(job, answers, "indices"), scattered(job, answers, "values")))


def _by_index(indices: npt.NDArray[np.int32], values: npt.NDArray[np.float32]) -> Iterator[SparseVector]:
    """Triton gives rows of one length, heaviest word first, -1 where none is left."""
    for words, weights in zip(indices, values, strict=True):
        order = np.argsort(words)
        order = order[words[order] >= 0]
        yield SparseVector(words[order], weights[order])
