"""Texts to one probability per label."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from zooserve.catalogue import Model
from zooserve_router.chunks import text_chunks
from zooserve_router.context import RequestContext
from zooserve_router.dispatch import OUTPUTS, Job, ZooDispatch, scattered, slo_class_of, tokens_read
from zooserve_router.vocabulary import WordList, known, refuse_too_long

__all__ = ["Classifications", "Classifier"]


@dataclass(frozen=True)
class Classifications:
    """Per text a probability for each of the model's labels, and how many tokens were read."""

    probabilities: npt.NDArray[np.float32]
    tokens: int


class Classifier:
    """Classifies with any `classify` model of the catalogue."""

    def __init__(self, dispatch: ZooDispatch, word_lists: Mapping[str, WordList], interactive_max_items: int) -> None:
        self._dispatch = dispatch
        self._word_lists = word_lists
        self._interactive_max_items = interactive_max_items

    async def classify(
        self, model: Model, texts: Sequence[str], params: Sequence[str], context: RequestContext
    ) -> Classifications:
        """The texts' probabilities, in their order. Raises InputTooLong, by the names in `params`.

        The stage behind it reads the last words of a longer text only: what stands before would pass unseen.
        """
        await refuse_too_long(known(self._word_lists, model), model, texts, params)
        slo_class = slo_class_of(context, len(texts), self._interactive_max_items)
        chunks = text_chunks(texts, model, slo_class)
        job = Job(model, model.triton_model(slo_class), slo_class, OUTPUTS["classify"], chunks)
        answers = await self._dispatch.run(job, context)
        context.record.input_tokens = tokens_read(answers)
        return Classifications(scattered(job, answers, "probabilities"), context.record.input_tokens)
