"""/v1/models and /v1/models/{id}: OpenAI's shape, plus what a caller wants to know before calling."""

from collections.abc import Iterator
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from zooserve.catalogue import Model
from zooserve_router.dispatch import known_model
from zooserve_router.services import Services, services_of

__all__ = ["routes"]

# OpenAI's field for when a model was made. The catalogue keeps no dates, and clients only ask that it is a number.
_CREATED = 0


async def list_models(request: Request) -> Response:
    """GET /v1/models."""
    services = services_of(request)
    listed = [_shown(one, services) for model in services.catalogue for one in _with_adapters(model)]
    return Response(orjson.dumps({"object": "list", "data": listed}), media_type="application/json")


async def show_model(request: Request) -> Response:
    """GET /v1/models/{id}, by name, alias (also one with slashes), name:adapter or name@version."""
    services = services_of(request)
    model = known_model(services.catalogue, request.path_params["name"])
    return Response(orjson.dumps(_shown(model, services)), media_type="application/json")


def _with_adapters(model: Model) -> Iterator[Model]:
    """The model, and then as each of its adapters makes it."""
    yield model
    if model.task == "chat":
        yield from map(model.with_adapter, model.chat_backend.lora)


def _shown(model: Model, services: Services) -> dict[str, Any]:
    return {
        "id": model.public_name,
        **({"parent": model.name} if model.adapter is not None else {}),
        "object": "model",
        "created": _CREATED,
        "owned_by": "zooserve",
        "task": model.task,
        "version": str(model.version),
        "aliases": model.aliases if model.adapter is None else (),
        "ready": services.readiness.is_ready(model.name),
        "limits": model.limits.model_dump(exclude_none=True),
        "dimensions": model.dimensions,
        **({} if (space := services.spaces.of(model)) is None else {"embedding_space": space}),
        "labels": model.labels,
        "modality": model.modality,
        **({"features": sorted(model.chat_backend.features)} if model.task == "chat" else {}),
        "exclusive": model.exclusive,
        **({} if model.releases is None else {"releases": model.releases.model_dump(exclude_none=True)}),
        "licence": model.licence,
        "description": model.description,
    }


routes = (
    Route("/v1/models", list_models, methods=["GET"]),
    Route("/v1/models/{name:path}", show_model, methods=["GET"]),
)
