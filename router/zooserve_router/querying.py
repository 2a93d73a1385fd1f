"""Queries to what a RAG application needs before it searches: vector, language, whether it attacks the prompt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from zooserve.catalogue import Model
from zooserve_router.chunks import text_chunks
from zooserve_router.context import RequestContext
from zooserve_router.dispatch import Job, ZooDispatch, outputs_of, scattered, slo_class_of, tokens_read
from zooserve_router.vocabulary import Vocabulary, known, refuse_too_long

__all__ = ["Queries", "QueryReader"]


@dataclass(frozen=True)
class Queries:
    """Per query a vector, the probability of a prompt injection and its language; the tokens that were read."""

    vectors: npt.NDArray[np.float32]
    injections: npt.NDArray[np.float32]
    languages: Sequence[str]
    """The likeliest language of each, by its ISO 639 code."""
    language_probabilities: npt.NDArray[np.float32]
    tokens: int


class QueryReader:
    """Reads queries with any `rag_query` model of the catalogue."""

    def __init__(
        self, dispatch: ZooDispatch, vocabularies: Mapping[str, Vocabulary], interactive_max_items: int
    ) -> None:
        self._dispatch = dispatch
        self._vocabularies = vocabularies
        self._interactive_max_items = interactive_max_items

    async def read(self, model: Model, texts: Sequence[str], params: Sequence[str], context: RequestContext) -> Queries:
        """What is known of each query, in their order. Raises InputTooLong, by the names in `params`."""
        await refuse_too_long(known(self._vocabularies, model), model, texts, params)
        slo_class = slo_class_of(context, len(texts), self._interactive_max_items)
        chunks = text_chunks(texts, model, slo_class)
        job = Job(model, model.triton_model(slo_class), slo_class, outputs_of(model), chunks)
        answers = await self._dispatch.run(job, context)
        context.record.input_tokens = tokens_read(answers)
        return Queries(
            vectors=scattered(job, answers, "embedding"),
            injections=scattered(job, answers, "injection_probability").reshape(-1),
            languages=scattered(job, answers, "language").reshape(-1).tolist(),
            language_probabilities=scattered(job, answers, "language_probability").reshape(-1),
            tokens=context.record.input_tokens,
        )
