"""The wiring: `create_app` puts the whole router together, top to bottom.

A request passes: middleware (context, body, errors) -> endpoints (HTTP) -> dispatch (decision) -> backends (I/O).
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from types import MappingProxyType

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig
from prometheus_client import CollectorRegistry
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Lifespan

from zooserve.catalogue import Catalogue, SloClass, load_catalogue, space_fingerprints
from zooserve.errors import BadInput, LockFault, MethodNotAllowed, RouteNotFound
from zooserve.settings import RouterSettings, Settings
from zooserve.weights.digests import weights_digests
from zooserve.weights.lock import WeightsLock, load_lock
from zooserve_observability.access_log import AccessLog
from zooserve_observability.metrics import RouterMetrics
from zooserve_observability.span_export import SpanExport, otlp_exporter
from zooserve_observability.tracing import Tracing
from zooserve_router.admission import Budget
from zooserve_router.backends.opening import opened_backend
from zooserve_router.backends.traces import TraceSource
from zooserve_router.backends.wire import ConnectionPool
from zooserve_router.backends.zoo import ZooBackend
from zooserve_router.chat.models import ChatModel, chat_probe, load_chat_models
from zooserve_router.chat.service import ChatService
from zooserve_router.classification import Classifier
from zooserve_router.dispatch import Zoo, ZooDispatch
from zooserve_router.embedding import Embedder
from zooserve_router.endpoints import (
    chat,
    classify,
    completions,
    embed_sparse,
    embeddings,
    health,
    kserve,
    models,
    rag_query,
    rerank,
    responses,
)
from zooserve_router.keys import KeyIds
from zooserve_router.middleware import Edge
from zooserve_router.probes import zoo_probe
from zooserve_router.querying import QueryReader
from zooserve_router.readiness import Readiness
from zooserve_router.releases import ReleasePolicy
from zooserve_router.reranking import Reranker
from zooserve_router.served import tell_what_is_served
from zooserve_router.services import Services
from zooserve_router.shadows import Shadows
from zooserve_router.spaces import Spaces
from zooserve_router.sparse import SparseEmbedder
from zooserve_router.stages import load_ensembles
from zooserve_router.vocabulary import TokenCounter, Vocabulary, WordList, load_vocabularies, load_word_lists
from zooserve_router.ways import Ways

__all__ = ["Services", "bare_app", "create_app", "wired"]

_log = logging.getLogger(__name__)
_UNKNOWN: Mapping[str, str] = MappingProxyType({})
# The supervisor gives the whole router about as long.
_DRAIN_S = 5.0
_TRIED_S = 10.0
"""A replica that takes another's place gets requests once its app has started: by then its models should be ready.

A zoo that is not there yet is found missing at once, so that a platform's start waits for nothing here.
"""
_NO_TELEMETRY: TelemetryConfig = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}
_TRITON_HTTP_PORT = 8000
"""Triton's own, where no port was settled on: a zoo that somebody else started."""

_ROUTES = (
    *chat.routes,
    *classify.routes,
    *completions.routes,
    *embed_sparse.routes,
    *embeddings.routes,
    *health.routes,
    *kserve.routes,
    *models.routes,
    *rag_query.routes,
    *rerank.routes,
    *responses.routes,
)


def create_app(settings: Settings) -> FastAPI:
    """The router over the zoo and the leaf that `settings` names. Nothing is opened before its lifespan starts."""
    metrics = RouterMetrics(CollectorRegistry())
    url = _spans_go_to(settings)
    spans = None if url is None else SpanExport(otlp_exporter(url), metrics.traces)
    access_log = AccessLog.by(settings, metrics.logs)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if access_log is not None:
                stack.enter_context(access_log.writing())
            if spans is not None:
                stack.enter_context(spans.exporting())
            app.state.services = await _opened(settings, metrics, stack)
            yield

    tracing = Tracing.off() if spans is None else Tracing.by(settings.tracing, spans)
    return bare_app(settings.router, metrics, lifespan, tracing, access_log, KeyIds(settings.key_salt))


def bare_app(
    bounds: RouterSettings,
    metrics: RouterMetrics,
    lifespan: Lifespan[FastAPI] | None = None,
    tracing: Tracing | None = None,
    access_log: AccessLog | None = None,
    key_ids: KeyIds | None = None,
) -> FastAPI:
    """Routes and middleware; whoever starts it puts Services on its state."""
    # No redirects and no pages of FastAPI's own: what is not listed here answers 404 in the caller's dialect.
    # Its telemetry would be a second set of spans beside ours, and an environment variable away from exporting them.
    app = FastAPI(
        lifespan=lifespan, redirect_slashes=False, openapi_url=None, routes=list(_ROUTES), telemetry=_NO_TELEMETRY
    )
    app.add_middleware(
        Edge,
        metrics=metrics,
        max_body_bytes=bounds.max_body_bytes,
        max_deadline_s=bounds.max_deadline_s,
        tracing=tracing,
        access_log=access_log,
        key_ids=key_ids,
    )
    app.add_exception_handler(HTTPException, _raise_as_ours)
    return app


async def _opened(settings: Settings, metrics: RouterMetrics, stack: AsyncExitStack) -> Services:
    """Everything that needs a running loop, closed again in reverse order by the stack."""
    catalogue = load_catalogue(settings.catalogue).enabling(settings.models).labelled(settings.repository)
    weights = weights_digests(catalogue, _lock(settings), settings.repository, settings.engine.gguf)
    pool = ConnectionPool(settings.zoo.host, settings.zoo.http_port or _TRITON_HTTP_PORT)
    stack.callback(pool.close)
    ways = Ways(metrics.endpoints)
    services = wired(
        settings,
        catalogue,
        load_vocabularies(catalogue, settings.repository),
        load_word_lists(catalogue, settings.repository),
        load_chat_models(
            catalogue,
            settings.repository,
            settings.router,
            partial(opened_backend, settings, stack, ways=ways, metrics=metrics.leaves),
        ),
        ZooBackend(
            pool,
            ways.way("zoo"),
            ensembles=load_ensembles(settings.zoo_repository),
            traces=_traces(settings, stack),
        ),
        metrics,
        weights,
    )
    stack.push_async_callback(services.dispatch.drain, _DRAIN_S)
    stack.push_async_callback(services.shadows.close)
    stack.callback(services.chat.stop)
    await stack.enter_async_context(_in_background(services.readiness))
    return services


def _lock(settings: Settings) -> WeightsLock:
    """Which files the weights were made of. Without it models and spaces are known by the files that lie there."""
    try:
        return load_lock(settings.weights_lock)
    except LockFault as fault:
        _log.warning("embedding spaces are told by the files of the models alone: %s", fault)
        return WeightsLock(packages=())


def _traces(settings: Settings, stack: AsyncExitStack) -> TraceSource | None:
    """The trace log of whoever started this router; without one, failures are told by their texts alone."""
    if settings.trace_log.port is None or settings.tracing.sampling == "off":
        return None
    pool = ConnectionPool(settings.trace_log.host, settings.trace_log.port)
    stack.callback(pool.close)
    return TraceSource(pool)


def _spans_go_to(settings: Settings) -> str | None:
    """The trace log, which hands on what it keeps; a router that runs alone tells the collector itself."""
    if settings.tracing.sampling == "off":
        return None
    return settings.trace_log.url or settings.tracing.url or None


def wired(
    settings: Settings,
    catalogue: Catalogue,
    vocabularies: Mapping[str, Vocabulary],
    word_lists: Mapping[str, WordList],
    chats: Mapping[str, ChatModel],
    zoo: Zoo,
    metrics: RouterMetrics,
    weights: Mapping[str, str] = _UNKNOWN,
) -> Services:
    """The services over these two backends. `weights` are the digests of the models' weights, by name."""
    counters: Mapping[str, TokenCounter] = {**vocabularies, **word_lists}
    probes = {
        model.name: zoo_probe(model, zoo, counters) if model.runs_on == "zoo" else chat_probe(model, chats)
        for model in catalogue
    }
    readiness = Readiness(catalogue, probes)
    _tell_of_no_refusals(catalogue, metrics)
    releases = ReleasePolicy(catalogue, readiness.is_ready)
    spaces = Spaces(space_fingerprints(catalogue, weights), metrics)
    tell_what_is_served(catalogue, weights, readiness, releases, spaces, metrics)
    dispatch = ZooDispatch(zoo, _budgets(settings.router), readiness, metrics)
    interactive = settings.router.interactive_max_items
    return Services(
        settings=settings,
        catalogue=catalogue,
        metrics=metrics,
        readiness=readiness,
        releases=releases,
        shadows=Shadows(releases, readiness.is_ready, metrics.releases),
        spaces=spaces,
        zoo=zoo,
        vocabularies=vocabularies,
        dispatch=dispatch,
        embedder=Embedder(dispatch, vocabularies, interactive),
        reranker=Reranker(dispatch, vocabularies, interactive),
        classifier=Classifier(dispatch, counters, interactive),
        query_reader=QueryReader(dispatch, vocabularies, interactive),
        sparse_embedder=SparseEmbedder(dispatch, vocabularies, interactive),
        chat=ChatService(chats, readiness, metrics, silence_s=settings.router.chat_silence_s),
    )


def _tell_of_no_refusals(catalogue: Catalogue, metrics: RouterMetrics) -> None:
    """Put the series of what may be refused there at 0."""
    for model in catalogue:
        if model.runs_on == "zoo":
            for slo_class in ("interactive", "bulk"):
                metrics.may_refuse(model.name, slo_class, ("tokens", "requests", "breaker", "not_ready"))
        else:
            metrics.may_refuse(model.name, "interactive", ("queue", "deadline", "breaker", "not_ready"))


def _budgets(bounds: RouterSettings) -> Mapping[SloClass, Budget]:
    # Every replica fills the same queues in Triton, and both classes do where a model has no bulk twin.
    requests = max(1, bounds.zoo_requests_in_flight // (2 * bounds.replicas))
    return {
        "interactive": Budget("The interactive class", bounds.interactive_tokens_in_flight, requests),
        "bulk": Budget("The bulk class", bounds.bulk_tokens_in_flight, requests),
    }


@asynccontextmanager
async def _in_background(readiness: Readiness) -> AsyncIterator[None]:
    watch = asyncio.create_task(readiness.watch())
    try:
        await readiness.tried(_TRIED_S)
        yield
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)


async def _raise_as_ours(request: Request, exc: Exception) -> Response:
    """Starlette's own refusals as ours, so that the middleware renders them in the caller's dialect."""
    status = getattr(exc, "status_code", 400)
    if status == 404:
        raise RouteNotFound(f"No route {request.url.path[:200]!r}. GET /v1/models lists what can be called.") from exc
    if status == 405:
        raise MethodNotAllowed(f"{request.method} is not allowed for {request.url.path[:200]!r}.") from exc
    raise BadInput(str(getattr(exc, "detail", exc))) from exc
