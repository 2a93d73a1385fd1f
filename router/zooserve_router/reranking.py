"""A query and documents to scores: the query travels as row 0 of every chunk of documents."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from zooserve.catalogue import Model, SloClass
from zooserve.triton.tensors import text_tensor
from zooserve_router.chunks import estimated_tokens, places_cut
from zooserve_router.context import RequestContext
from zooserve_router.dispatch import OUTPUTS, Chunk, Job, ZooDispatch, slo_class_of, tokens_read
from zooserve_router.vocabulary import Vocabulary, known, refuse_too_long

__all__ = ["RankedDocument", "Ranking", "RerankWork", "Reranker"]


@dataclass(frozen=True)
class RerankWork:
    """What to rank."""

    model: Model
    query: str
    documents: Sequence[str]
    max_tokens_per_document: int | None = None


@dataclass(frozen=True)
class RankedDocument:
    """A document's place in the caller's list, and how relevant it is, from 0 to 1."""

    index: int
    relevance: float


@dataclass(frozen=True)
class Ranking:
    """All documents, the most relevant first, and how many tokens the encoder read."""

    documents: Sequence[RankedDocument]
    tokens: int


class Reranker:
    """Ranks with any `rerank` model of the catalogue."""

    def __init__(
        self, dispatch: ZooDispatch, vocabularies: Mapping[str, Vocabulary], interactive_max_items: int
    ) -> None:
        self._dispatch = dispatch
        self._vocabularies = vocabularies
        self._interactive_max_items = interactive_max_items

    async def rank(self, work: RerankWork, context: RequestContext) -> Ranking:
        """The documents by relevance; equal ones stay in the caller's order.

        A document beyond the model's length is read up to it. Raises InputTooLong for such a query.
        """
        vocabulary = known(self._vocabularies, work.model)
        await refuse_too_long(vocabulary, work.model, [work.query], ["query"])
        documents = await _cut_documents(work, vocabulary)
        slo_class = slo_class_of(context, len(documents), self._interactive_max_items)
        chunks = rerank_chunks(work.query, documents, work.model, slo_class)
        job = Job(work.model, work.model.triton_model(slo_class), slo_class, OUTPUTS["rerank"], chunks)
        answers = await self._dispatch.run(job, context)
        tokens = tokens_read(answers)
        context.record.input_tokens = tokens
        scores = np.empty(len(documents), dtype=np.float32)
        for chunk, answer in zip(chunks, answers, strict=True):
            scores[list(chunk.places)] = answer.outputs["score"].reshape(-1)[1:]
        return Ranking(ranked(scores, work.model.best_score), tokens)


def rerank_chunks(query: str, documents: Sequence[str], model: Model, slo_class: SloClass) -> tuple[Chunk, ...]:
    """Chunks of documents of similar length, each behind the query. The query counts in each."""
    max_tokens = model.limits.max_tokens
    query_tokens = estimated_tokens(query, max_tokens)
    return tuple(
        Chunk(
            inputs=(text_tensor("text", [query, *(documents[place] for place in places)]),),
            places=places,
            tokens=query_tokens + sum(estimated_tokens(documents[place], max_tokens) for place in places),
        )
        for places in places_cut(documents, model, slo_class, leading=query)
    )


def ranked(scores: npt.NDArray[np.float32], best_score: float) -> list[RankedDocument]:
    """The places by raw score, highest first and stable; clipping to 0..1 comes after, so that it makes no ties."""
    relevance = np.clip(scores / best_score, 0.0, 1.0)
    return [RankedDocument(int(place), float(relevance[place])) for place in np.argsort(-scores, kind="stable")]


async def _cut_documents(work: RerankWork, vocabulary: Vocabulary) -> Sequence[str]:
    wanted = work.max_tokens_per_document
    if wanted is None or wanted >= work.model.limits.max_tokens:
        return work.documents  # Triton's tokenizer stage cuts there itself
    return await vocabulary.cut(work.documents, wanted)
