"""/v1/embeddings, as OpenAI has it to the letter.

`dimensions` other than the model's own is refused, not cut: MiniLM was not trained so that a prefix of its vector
means anything, and a silently worse vector would only show in the search results.
"""

from dataclasses import dataclass

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from zooserve.catalogue import Catalogue, Model
from zooserve.errors import Unsupported
from zooserve_router.dispatch import find_model
from zooserve_router.embedding import Embeddings, TextInputs, TokenInputs
from zooserve_router.inputs import mixed_inputs
from zooserve_router.payload import Fields, json_fields
from zooserve_router.services import context_of, services_of
from zooserve_router.vectors import ENCODINGS, encoded_vectors

__all__ = ["EmbeddingsRequest", "routes"]


@dataclass(frozen=True)
class EmbeddingsRequest:
    """One parsed and checked request."""

    model: Model
    inputs: TextInputs | TokenInputs
    encoding: str

    @classmethod
    def parse(cls, fields: Fields, catalogue: Catalogue) -> "EmbeddingsRequest":
        """Raises BadInput or ModelNotFound, naming the field at fault."""
        model = find_model(catalogue, fields.required_text("model"), "embed")
        value = fields.required("input")
        encoding = fields.choice("encoding_format", ENCODINGS, default="float")
        _refuse_other_dimensions(fields.integer("dimensions", low=1), model)
        fields.text("user")
        fields.refuse_unknown()
        return cls(model, mixed_inputs(value, model), encoding)


def _refuse_other_dimensions(wanted: int | None, model: Model) -> None:
    if wanted is not None and wanted != model.dimensions:
        raise Unsupported(
            f"`dimensions` is {wanted}; vectors of {model.name} have {model.dimensions} and cannot be shortened "
            "faithfully. Leave `dimensions` out.",
            param="dimensions",
        )


async def create_embeddings(request: Request) -> Response:
    """POST /v1/embeddings."""
    services, context = services_of(request), context_of(request)
    with context.record.phase("parse"):
        wanted = EmbeddingsRequest.parse(await json_fields(request), services.catalogue)
        context.record.runs(wanted.model, context.record.slo_class)
    made = await services.embedder.embed(wanted.model, wanted.inputs, context)
    return Response(_rendered(wanted, made), media_type="application/json")


def _rendered(wanted: EmbeddingsRequest, made: Embeddings) -> bytes:
    answer = {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": vector}
            for index, vector in enumerate(encoded_vectors(made.vectors, wanted.encoding))
        ],
        "model": wanted.model.name,
        "usage": {"prompt_tokens": made.tokens, "total_tokens": made.tokens},
    }
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)


routes = (Route("/v1/embeddings", create_embeddings, methods=["POST"]),)
