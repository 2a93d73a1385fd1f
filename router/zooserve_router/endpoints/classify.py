"""/v1/classify, in vLLM's shape.

Where a model's labels are not exclusive, `probs` are independent sigmoids that do not add up to 1, and `label` is the
likeliest label if it is more likely than not, else null: calling a harmless text "toxic" because 0.02 beats 0.01 would
be wrong. Where they are exclusive, `probs` add up to 1 and `label` is the likeliest, however unlikely.
`labels` are all labels that are more likely than not, `scores` the probabilities by label, of many the likeliest.
"""

import heapq
import time
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from zooserve.catalogue import Model
from zooserve_router.classification import Classifications
from zooserve_router.contents import ContentInputs, content_inputs
from zooserve_router.embedding import TextInputs
from zooserve_router.inputs import text_inputs
from zooserve_router.lineup import Lineup
from zooserve_router.payload import Fields, json_fields
from zooserve_router.services import context_of, services_of

__all__ = ["ClassifyRequest", "routes"]

_LIKELY = 0.5
# Of 214 labels nobody reads the last 200; `probs` has them all, in the order of `labels` in /v1/models.
_MANY, _SHOWN = 20, 5


@dataclass(frozen=True)
class ClassifyRequest:
    """One parsed and checked request."""

    model: Model
    inputs: TextInputs | ContentInputs

    @classmethod
    def parse(cls, fields: Fields, lineup: Lineup) -> "ClassifyRequest":
        """Raises BadInput or ModelNotFound, naming the field at fault."""
        model = lineup.model_for(fields.text("model"), "classify")
        value = fields.required("input")
        fields.text("user")
        fields.refuse_unknown()
        return cls(model, text_inputs(value, model) if model.modality == "text" else content_inputs(value, model))


async def classify(request: Request) -> Response:
    """POST /v1/classify."""
    services, context = services_of(request), context_of(request)
    with context.phase("parse"):
        wanted = ClassifyRequest.parse(await json_fields(request), services.lineup(context))
        context.record.runs(wanted.model, context.record.slo_class)
    made = await services.classifier.classify(wanted.model, wanted.inputs, context)
    answer = _answer(wanted.model, made, f"classify-{context.request_id}")
    return Response(
        orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY),
        media_type="application/json",
        background=services.shadows.after(
            wanted.model, context, lambda model, its: services.classifier.classify(model, wanted.inputs, its)
        ),
    )


def _answer(model: Model, made: Classifications, answer_id: str) -> dict[str, Any]:
    return {
        "id": answer_id,
        "object": "list",
        "created": int(time.time()),
        "model": model.public_name,
        "data": [_item(model, index, row) for index, row in enumerate(made.probabilities)],
        "usage": {"prompt_tokens": made.tokens, "total_tokens": made.tokens},
    }


def _item(model: Model, index: int, probabilities: npt.NDArray[np.float32]) -> dict[str, Any]:
    scores = dict(zip(model.labels, probabilities.tolist(), strict=True))
    likely = [label for label, probability in scores.items() if probability >= _LIKELY]
    candidates = model.labels if model.exclusive else likely
    return {
        "index": index,
        "label": max(candidates, key=scores.__getitem__, default=None),
        "labels": likely,
        "probs": probabilities,
        "scores": scores if len(scores) <= _MANY else _likeliest(scores),
        "num_classes": len(scores),
    }


def _likeliest(scores: Mapping[str, float]) -> dict[str, float]:
    return dict(heapq.nlargest(_SHOWN, scores.items(), key=itemgetter(1)))


routes = (Route("/v1/classify", classify, methods=["POST"]),)
