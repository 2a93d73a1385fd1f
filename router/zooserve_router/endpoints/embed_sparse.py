"""/embed_sparse, as text-embeddings-inference has it: no standard of OpenAI's kind exists for sparse vectors.

Ours beside it is `model`, since more than one may be served; left out it is the first sparse one of the catalogue.
Longer texts are refused unless `truncate` is true, and then cut at their end. Errors come as TEI has them, with the
status codes of every other route here.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from zooserve.catalogue import Model
from zooserve_router.embedding import TextInputs
from zooserve_router.inputs import text_inputs
from zooserve_router.lineup import Lineup
from zooserve_router.payload import Fields, json_fields
from zooserve_router.services import context_of, services_of
from zooserve_router.sparse import SparseVector

__all__ = ["EmbedSparseRequest", "routes"]

# Of 256 words each. As many texts as a request may bring have half a million: other requests want a turn meanwhile.
_INLINE_TEXTS = 32


@dataclass(frozen=True)
class EmbedSparseRequest:
    """One parsed and checked request."""

    model: Model
    inputs: TextInputs
    truncate: bool

    @classmethod
    def parse(cls, fields: Fields, lineup: Lineup) -> "EmbedSparseRequest":
        """Raises BadInput or ModelNotFound, naming the field at fault."""
        model = lineup.model_for(fields.text("model"), "sparse")
        value = fields.required("inputs")
        truncate = fields.boolean("truncate", default=False)
        fields.choice("truncation_direction", ("Right", "right"), default="Right")
        fields.refuse_unknown()
        return cls(model, text_inputs(value, model, "inputs"), truncate)


async def embed_sparse(request: Request) -> Response:
    """POST /embed_sparse."""
    services, context = services_of(request), context_of(request)
    with context.phase("parse"):
        wanted = EmbedSparseRequest.parse(await json_fields(request), services.lineup(context))
        context.record.runs(wanted.model, context.record.slo_class)
    made = await services.sparse_embedder.embed(wanted.model, wanted.inputs, context, truncate=wanted.truncate)
    body = _rendered(made) if len(made) <= _INLINE_TEXTS else await asyncio.to_thread(_rendered, made)
    return Response(body, media_type="application/json")


def _rendered(vectors: Sequence[SparseVector]) -> bytes:
    # Text by text: one call for them all would not let go of the interpreter before its end.
    return b"[%b]" % b",".join(map(_row, vectors))


def _row(vector: SparseVector) -> bytes:
    entries = zip(vector.indices.tolist(), vector.values.tolist(), strict=True)
    return orjson.dumps([{"index": index, "value": value} for index, value in entries])


routes = (Route("/embed_sparse", embed_sparse, methods=["POST"]),)
