"""/v1/classify, in vLLM's shape.

The labels are not exclusive: `probs` are independent sigmoids that do not add up to 1. `label` is the likeliest label
if it is more likely than not, else null: calling a harmless text "toxic" because 0.02 beats 0.01 would be wrong.
`labels` are all labels that are more likely than not, `scores` every label's probability by name.
"""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from zooserve.catalogue import Catalogue, Model
from zooserve_router.classification import Classifications
from zooserve_router.dispatch import model_for
from zooserve_router.embedding import TextInputs
from zooserve_router.inputs import text_inputs
from zooserve_router.payload import Fields, json_fields
from zooserve_router.services import context_of, services_of

__all__ = ["ClassifyRequest", "routes"]

_LIKELY = 0.5


@dataclass(frozen=True)
class ClassifyRequest:
    """One parsed and checked request."""

    model: Model
    inputs: TextInputs

    @classmethod
    def parse(cls, fields: Fields, catalogue: Catalogue) -> "ClassifyRequest":
        """Raises BadInput or ModelNotFound, naming the field at fault."""
        model = model_for(catalogue, fields.text("model"), "classify")
        value = fields.required("input")
        fields.text("user")
        fields.refuse_unknown()
        return cls(model, text_inputs(value, model))


async def classify(request: Request) -> Response:
    """POST /v1/classify."""
    services, context = services_of(request), context_of(request)
    with context.record.phase("parse"):
        wanted = ClassifyRequest.parse(await json_fields(request), services.catalogue)
        context.record.runs(wanted.model, context.record.slo_class)
    made = await services.classifier.classify(wanted.model, wanted.inputs.texts, wanted.inputs.params, context)
    answer = _answer(wanted.model, made, f"classify-{context.request_id}")
    return Response(orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")


def _answer(model: Model, made: Classifications, answer_id: str) -> dict[str, Any]:
    return {
        "id": answer_id,
        "object": "list",
        "created": int(time.time()),
        "model": model.name,
        "data": [_item(model, index, row) for index, row in enumerate(made.probabilities)],
        "usage": {"prompt_tokens": made.tokens, "total_tokens": made.tokens},
    }


def _item(model: Model, index: int, probabilities: npt.NDArray[np.float32]) -> dict[str, Any]:
    scores = dict(zip(model.labels, probabilities.tolist(), strict=True))
    likely = [label for label, probability in scores.items() if probability >= _LIKELY]
    return {
        "index": index,
        "label": max(likely, key=scores.__getitem__, default=None),
        "labels": likely,
        "probs": probabilities,
        "scores": scores,
        "num_classes": len(scores),
    }


routes = (Route("/v1/classify", classify, methods=["POST"]),)
