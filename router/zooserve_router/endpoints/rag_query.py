"""/v1/rag_query: one call for a query: its vector, its language and whether it tries to take the prompt over."""

from dataclasses import dataclass
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from zooserve.catalogue import Model
from zooserve_router.embedding import TextInputs
from zooserve_router.inputs import text_inputs
from zooserve_router.lineup import Lineup
from zooserve_router.payload import Fields, json_fields
from zooserve_router.querying import Queries
from zooserve_router.services import context_of, services_of
from zooserve_router.vectors import ENCODINGS, encoded_vectors

__all__ = ["RagQueryRequest", "routes"]

_FLAGGED = 0.5


@dataclass(frozen=True)
class RagQueryRequest:
    """One parsed and checked request."""

    model: Model
    inputs: TextInputs
    encoding: str

    @classmethod
    def parse(cls, fields: Fields, lineup: Lineup) -> "RagQueryRequest":
        """Raises BadInput or ModelNotFound, naming the field at fault."""
        model = lineup.model_for(fields.text("model"), "rag_query")
        value = fields.required("input")
        encoding = fields.choice("encoding_format", ENCODINGS, default="float")
        fields.text("user")
        fields.refuse_unknown()
        return cls(model, text_inputs(value, model), encoding)


async def rag_query(request: Request) -> Response:
    """POST /v1/rag_query."""
    services, context = services_of(request), context_of(request)
    with context.phase("parse"):
        wanted = RagQueryRequest.parse(await json_fields(request), services.lineup(context))
        context.record.runs(wanted.model, context.record.slo_class)
    read = await services.query_reader.read(wanted.model, wanted.inputs.texts, wanted.inputs.params, context)
    answer = _answer(wanted, read)
    return Response(orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")


def _answer(wanted: RagQueryRequest, read: Queries) -> dict[str, Any]:
    vectors = encoded_vectors(read.vectors, wanted.encoding)
    rows = zip(vectors, read.injections, read.languages, read.language_probabilities, strict=True)
    return {
        "object": "list",
        "model": wanted.model.public_name,
        "data": [
            {
                "index": index,
                "embedding": vector,
                "prompt_injection": {"probability": float(injection), "flagged": bool(injection >= _FLAGGED)},
                "language": {"code": code, "probability": float(probability)},
            }
            for index, (vector, injection, code, probability) in enumerate(rows)
        ],
        "usage": {"prompt_tokens": read.tokens, "total_tokens": read.tokens},
    }


routes = (Route("/v1/rag_query", rag_query, methods=["POST"]),)
