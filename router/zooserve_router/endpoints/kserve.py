"""KServe v2 for the zoo alone, so that `tritonclient.http` works unmodified with the catalogue's names.

Reachable are the models that the catalogue names, by public name, alias or name@version, and the zoo ensembles and
encoders it mentions. Everything else of Triton (other stages, repository control, statistics, tracing, logging, shared
memory) has no route here. Bodies pass unchanged, after a look at what would only fail inside a stage.
"""

from collections.abc import Awaitable
from dataclasses import dataclass, replace

import orjson
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from zooserve import __version__
from zooserve.catalogue import Catalogue, Model, SloClass
from zooserve.errors import BackendUnavailable, BadInput, ModelNotFound
from zooserve_router.backends.wire import RawAnswer
from zooserve_router.backends.zoo import HEADER_LENGTH
from zooserve_router.context import RequestContext
from zooserve_router.dispatch import Relay, known_model
from zooserve_router.kserve_body import checked_body
from zooserve_router.services import Services, context_of, services_of

__all__ = ["Target", "find_target", "routes"]

_JSON = "application/json"


@dataclass(frozen=True)
class Target:
    """What a name in a path means: a public model, and the zoo's Triton model that runs for it."""

    model: Model
    triton_model: str
    slo_class: SloClass
    longest_row: int | None = None
    """Of a model that reads rows of token ids: the most tokens that a row may have."""

    @property
    def path(self) -> str:
        """The Triton model's own path."""
        return f"/v2/models/{self.triton_model}"


def find_target(catalogue: Catalogue, name: str, version: str | None, slo_class: SloClass | None) -> Target:
    """The target of this name, at this version if one is asked for. Raises ModelNotFound, or BadInput for chat."""
    target = _mentioned(catalogue, name) or _public(catalogue, name, slo_class)
    if version is not None and version != str(target.model.version):
        raise ModelNotFound(
            f"{name} has no version {version[:32]!r} here; it is at version {target.model.version}.", param="model"
        )
    return target


def _public(catalogue: Catalogue, name: str, slo_class: SloClass | None) -> Target:
    model = known_model(catalogue, name)
    if model.runs_on != "zoo":
        raise BadInput(f"{model.name} is a chat model and answers in pieces: call it at /v1/chat/completions.")
    wanted = slo_class or "interactive"
    return Target(model, model.triton_model(wanted), wanted)


def _mentioned(catalogue: Catalogue, name: str) -> Target | None:
    """A Triton model that the catalogue mentions and that is no public name itself."""
    if name in catalogue.names():
        return None
    for model in catalogue:
        if model.runs_on != "zoo":
            continue
        for slo_class, triton_model in model.triton.items():
            if triton_model == name:
                return Target(model, triton_model, slo_class)
        for slo_class, encoder in (model.encoder or {}).items():
            if encoder == name:
                return Target(model, encoder, slo_class, longest_row=model.limits.max_tokens)
    return None


async def server_metadata(request: Request) -> Response:
    """GET /v2."""
    body = {"name": "zooserve", "version": __version__, "extensions": ["binary_tensor_data", "parameters"]}
    return Response(orjson.dumps(body), media_type=_JSON)


async def server_live(request: Request) -> Response:
    """GET /v2/health/live."""
    return Response()


async def server_ready(request: Request) -> Response:
    """GET /v2/health/ready."""
    return Response(status_code=200 if services_of(request).readiness.ready else 503)


async def model_ready(request: Request) -> Response:
    """GET /v2/models/{name}[/versions/{version}]/ready: by the same proof as /health/ready."""
    services_of(request).readiness.require(_target(request).model)
    return Response()


async def model_metadata(request: Request) -> Response:
    """GET /v2/models/{name}[/versions/{version}]."""
    return await _told(request, "")


async def model_config(request: Request) -> Response:
    """GET /v2/models/{name}[/versions/{version}]/config."""
    return await _told(request, "/config")


async def _told(request: Request, leaf: str) -> Response:
    services, context = services_of(request), context_of(request)
    target = _target(request)
    answer = await services.zoo.send("GET", target.path + leaf, {}, b"", context.deadline.remaining_s())
    if answer.status != 200:
        raise BackendUnavailable(f"{target.triton_model} is not loaded.")
    return _passed_on(answer)


async def infer(request: Request) -> Response:
    """POST /v2/models/{name}[/versions/{version}]/infer."""
    services, context = services_of(request), context_of(request)
    with context.phase("parse"):
        target = _released(_target(request), request)
        context.record.runs(target.model, target.slo_class)
        if request.headers.get("content-encoding", "identity") != "identity":
            raise BadInput("Compressed bodies are not read here; send the request without content-encoding.")
        body = await request.body()
        header_length = request.headers.get(HEADER_LENGTH)
        vocabulary = services.vocabularies.get(target.model.name)
        content = None if target.model.modality == "text" else target.model.limits.max_tokens
        tokens = checked_body(body, header_length, vocabulary, target.longest_row, content)
    headers = {} if header_length is None else {HEADER_LENGTH: header_length}
    relay = Relay(target.model, target.triton_model, target.slo_class, headers, body, tokens)
    answer = await services.dispatch.relay(relay, context)
    return _passed_on(answer, _mirrored(relay, services, context) if answer.status == 200 else None)


def _target(request: Request) -> Target:
    services, context = services_of(request), context_of(request)
    params = request.path_params
    return find_target(services.catalogue, params["name"], params.get("version"), context.slo_class)


def _released(target: Target, request: Request) -> Target:
    """The same in the release that answers, unless the path says the version or names a Triton model of its own."""
    lineup = services_of(request).lineup(context_of(request))
    own = request.path_params["name"] not in lineup.catalogue.names() and "@" not in request.path_params["name"]
    pinned = "version" in request.path_params or own
    model = lineup.answering(target.model.alone() if pinned else target.model)
    if model.release_of is None:
        return replace(target, model=model)
    return replace(target, model=model, triton_model=model.triton_model(target.slo_class))


def _mirrored(relay: Relay, services: Services, context: RequestContext) -> BackgroundTask | None:
    def computed(model: Model, its: RequestContext) -> Awaitable[RawAnswer]:
        shadow = replace(relay, model=model, triton_model=model.triton_model("bulk"), slo_class="bulk")
        return services.dispatch.relay(shadow, its)

    return services.shadows.after(relay.model, context, computed)


def _passed_on(answer: RawAnswer, background: BackgroundTask | None = None) -> Response:
    kept = {name: answer.headers[name] for name in ("content-type", HEADER_LENGTH) if name in answer.headers}
    return Response(answer.body, answer.status, headers=kept, background=background)


class _Modest(Route):
    """A route that does not claim paths for other methods than its own: any path looks like a name with slashes."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Starlette: whether this request is meant."""
        match, child = super().matches(scope)
        return (match, child) if match is Match.FULL else (Match.NONE, {})


def _model_routes(prefix: str, route: type[Route] = Route) -> tuple[Route, ...]:
    return (
        route(f"{prefix}/config", model_config, methods=["GET"]),
        route(f"{prefix}/ready", model_ready, methods=["GET"]),
        route(f"{prefix}/infer", infer, methods=["POST"]),
        route(prefix, model_metadata, methods=["GET"]),
    )


routes = (
    Route("/v2", server_metadata, methods=["GET"]),
    Route("/v2/health/live", server_live, methods=["GET"]),
    Route("/v2/health/ready", server_ready, methods=["GET"]),
    *_model_routes("/v2/models/{name}"),
    *_model_routes("/v2/models/{name}/versions/{version}"),
    # Aliases as Hugging Face has them. What matches is only looked up: no part of it goes into a path of Triton's.
    *_model_routes("/v2/models/{name:path}/versions/{version}", _Modest),
    *_model_routes("/v2/models/{name:path}", _Modest),
)
