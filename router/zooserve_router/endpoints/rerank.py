"""/v1/rerank and /v2/rerank: one answer that the clients of Cohere, Jina and vLLM all understand.

`return_documents` left out means yes at /v1 (Jina's and vLLM's habit; Cohere's v1 client ignores what it did not ask
for) and no at /v2 (Cohere v2 has no such field; vLLM's clients can ask). Documents beyond the model's length are read
up to it, as Cohere does; a query beyond it is refused, since every score would be about another question.
`top_n` 0 means all, as in vLLM. `priority` is checked and has no effect: the header x-zooserve-class decides.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from zooserve.catalogue import Model
from zooserve.errors import BadInput, TooManyItems
from zooserve_router.lineup import Lineup
from zooserve_router.payload import Fields, checked_text, json_fields, kind_of
from zooserve_router.reranking import RankedDocument, Ranking, RerankWork
from zooserve_router.services import context_of, services_of

__all__ = ["RerankRequest", "routes"]

_MAX_TOKENS_PER_DOCUMENT = 4096  # Cohere's default: more than any model here reads
_LOWEST_PRIORITY = 999
_DOCUMENTS_PER_SEARCH_UNIT = 100


@dataclass(frozen=True)
class RerankRequest:
    """One parsed and checked request."""

    work: RerankWork
    top_n: int
    return_documents: bool

    @classmethod
    def parse(cls, fields: Fields, lineup: Lineup, *, return_documents: bool) -> "RerankRequest":
        """Raises BadInput or ModelNotFound, naming the field at fault."""
        model = lineup.model_for(fields.text("model"), "rerank")
        query = checked_text(fields.required("query"), "query")
        documents = _documents(fields.required("documents"), model)
        top_n = fields.integer("top_n", low=0)
        per_document = fields.integer("max_tokens_per_doc", low=1)
        fields.integer("priority", low=0, high=_LOWEST_PRIORITY)
        return_documents = fields.boolean("return_documents", default=return_documents)
        fields.text("user")
        fields.refuse_unknown()
        work = RerankWork(model, query, documents, per_document or _MAX_TOKENS_PER_DOCUMENT)
        return cls(work, top_n or len(documents), return_documents)


def _documents(value: Any, model: Model) -> Sequence[str]:
    if not isinstance(value, list):
        raise BadInput(f"`documents` is {kind_of(value)}; it must be an array.", param="documents")
    if not value:
        raise BadInput("`documents` is an empty array; send at least one document.", param="documents")
    if len(value) > model.limits.max_items:
        raise TooManyItems(
            f"`documents` has {len(value)} items; {model.name} takes at most {model.limits.max_items} in one request.",
            param="documents",
        )
    return [_document(item, f"documents[{place}]") for place, item in enumerate(value)]


def _document(item: Any, param: str) -> str:
    if isinstance(item, dict):
        if set(item) != {"text"}:
            raise BadInput(f"`{param}` is an object; its one field must be `text`.", param=param)
        return checked_text(item["text"], f"{param}.text")
    return checked_text(item, param)


async def rerank_v1(request: Request) -> Response:
    """POST /v1/rerank."""
    return await _rerank(request, api_version="1", return_documents=True)


async def rerank_v2(request: Request) -> Response:
    """POST /v2/rerank."""
    return await _rerank(request, api_version="2", return_documents=False)


async def _rerank(request: Request, *, api_version: str, return_documents: bool) -> Response:
    services, context = services_of(request), context_of(request)
    with context.phase("parse"):
        fields = await json_fields(request)
        wanted = RerankRequest.parse(fields, services.lineup(context), return_documents=return_documents)
        context.record.runs(wanted.work.model, context.record.slo_class)
    ranking = await services.reranker.rank(wanted.work, context)
    return Response(
        orjson.dumps(_answer(wanted, ranking, api_version)),
        media_type="application/json",
        background=services.shadows.after(
            wanted.work.model,
            context,
            lambda model, its: services.reranker.rank(replace(wanted.work, model=model), its),
        ),
    )


def _answer(wanted: RerankRequest, ranking: Ranking, api_version: str) -> dict[str, Any]:
    units = -(-len(wanted.work.documents) // _DOCUMENTS_PER_SEARCH_UNIT)
    return {
        "id": str(uuid.uuid4()),
        "object": "list",
        "model": wanted.work.model.public_name,
        "results": [_result(wanted, document) for document in ranking.documents[: wanted.top_n]],
        "meta": {
            "api_version": {"version": api_version},
            "billed_units": {"search_units": units},
            "tokens": {"input_tokens": ranking.tokens, "output_tokens": 0},
        },
        "usage": {"prompt_tokens": ranking.tokens, "total_tokens": ranking.tokens},
    }


def _result(wanted: RerankRequest, document: RankedDocument) -> dict[str, Any]:
    result: dict[str, Any] = {"index": document.index, "relevance_score": document.relevance}
    if wanted.return_documents:
        result["document"] = {"text": wanted.work.documents[document.index]}
    return result


routes = (
    Route("/v1/rerank", rerank_v1, methods=["POST"]),
    Route("/v2/rerank", rerank_v2, methods=["POST"]),
)
