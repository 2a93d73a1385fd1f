"""Texts, images or files to one probability per label."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from zooserve.catalogue import Model
from zooserve.triton.tensors import bytes_tensor
from zooserve_router.chunks import text_chunks
from zooserve_router.contents import ContentInputs
from zooserve_router.context import RequestContext
from zooserve_router.dispatch import Chunk, Job, ZooDispatch, outputs_of, scattered, slo_class_of, tokens_read
from zooserve_router.embedding import TextInputs
from zooserve_router.vocabulary import TokenCounter, known, refuse_too_long

__all__ = ["Classifications", "Classifier"]


@dataclass(frozen=True)
class Classifications:
    """Per input a probability for each of the model's labels, and how many tokens were read."""

    probabilities: npt.NDArray[np.float32]
    tokens: int


class Classifier:
    """Classifies with any `classify` model of the catalogue."""

    def __init__(self, dispatch: ZooDispatch, counters: Mapping[str, TokenCounter], interactive_max_items: int) -> None:
        self._dispatch = dispatch
        self._counters = counters
        self._interactive_max_items = interactive_max_items

    async def classify(
        self, model: Model, inputs: TextInputs | ContentInputs, context: RequestContext
    ) -> Classifications:
        """The inputs' probabilities, in their order. Raises InputTooLong or BadInput, naming the item at fault.

        A text longer than the model reads is refused where the model counts tokens: what its stage would leave out
        would pass unseen.
        """
        slo_class = slo_class_of(context, len(inputs.params), self._interactive_max_items)
        if isinstance(inputs, ContentInputs):
            chunks = _content_chunks(inputs, model)
        else:
            if model.tokenizer is not None:
                await refuse_too_long(known(self._counters, model), model, inputs.texts, inputs.params)
            chunks = text_chunks(inputs.texts, model, slo_class)
        job = Job(model, model.triton_model(slo_class), slo_class, outputs_of(model), chunks)
        answers = await self._dispatch.run(job, context)
        context.record.input_tokens = tokens_read(answers)
        return Classifications(scattered(job, answers, "probabilities"), context.record.input_tokens)


def _content_chunks(inputs: ContentInputs, model: Model) -> tuple[Chunk, ...]:
    """One by one: Triton joins them again, and a refusal names its item."""
    return tuple(
        Chunk((bytes_tensor(model.modality, [content]),), [place], model.limits.max_tokens, param)
        for place, (content, param) in enumerate(zip(inputs.contents, inputs.params, strict=True))
    )
