"""What the root span of a request says: which route, which model, how it ended, and nothing of the caller's words."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from zooserve.errors import BackendFailed, FailedStage
from zooserve.settings import RouterSettings, TracingSettings
from zooserve_observability.tracing import Tracing
from zooserve_router.app import bare_app

SECRET = "s3cret-words"


@dataclass(frozen=True)
class Traced:
    """The router, and the spans that have ended."""

    http: httpx.AsyncClient
    exporter: InMemorySpanExporter

    def root(self) -> ReadableSpan:
        (found,) = [span for span in self.exporter.get_finished_spans() if span.name == "zooserve.request"]
        return found


@pytest.fixture
async def traced(router) -> AsyncIterator[Traced]:
    exporter = InMemorySpanExporter()
    tracing = Tracing.by(TracingSettings(), SimpleSpanProcessor(exporter))
    app = bare_app(RouterSettings(), router.metrics, tracing=tracing)
    app.state.services = router.services
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://router") as http:
        yield Traced(http, exporter)


@pytest.mark.parametrize(
    ("path", "body", "route", "outcome"),
    [
        ("/v1/embeddings", {"model": "embed", "input": "w5"}, "/v1/embeddings", "ok"),
        ("/v1/embeddings", {"model": SECRET, "input": SECRET}, "/v1/embeddings", "ModelNotFound"),
        ("/v1/embeddings", {"model": "embed", "input": [SECRET, 5]}, "/v1/embeddings", "BadInput"),
        (f"/v2/models/{SECRET}/infer", {}, "/v2/models/{name}/infer", "ModelNotFound"),
        (f"/{SECRET}", {}, "unknown", "RouteNotFound"),
    ],
)
async def test_the_route_and_the_end_are_told_in_words_of_our_own(traced, path, body, route, outcome):
    await traced.http.post(path, json=body)
    root = traced.root()
    assert (root.attributes["http.route"], root.attributes["zooserve.outcome"]) == (route, outcome)
    assert SECRET not in str([span.to_json() for span in traced.exporter.get_finished_spans()])
    assert root.status.is_ok, "what a caller asks wrongly is no error of this span"


async def test_every_span_of_a_request_bears_its_model_and_version(traced):
    await traced.http.post("/v1/embeddings", json={"model": "embed", "input": "w5"})
    spans = traced.exporter.get_finished_spans()
    assert "parse" in {span.name for span in spans}
    for span in spans:
        assert (span.attributes["zooserve.model"], span.attributes["zooserve.model_version"]) == ("embed", "1")


@pytest.mark.parametrize(
    ("path", "body", "operation"),
    [
        ("/v1/embeddings", {"model": "embed", "input": "w5"}, "embeddings"),
        ("/v1/rerank", {"query": "w5", "documents": ["w5"]}, None),
    ],
)
async def test_a_call_to_the_zoo_is_named_as_opentelemetry_does_where_it_can(traced, router, path, body, operation):
    assert (await traced.http.post(path, json=body)).status_code == 200
    assert {asked.tags.get("gen_ai.operation.name") for asked in router.zoo.asked} == {operation}


async def test_a_method_that_a_client_made_up_is_other(traced):
    await traced.http.request("S3CRET", "/v1/embeddings")
    assert traced.root().attributes["http.request.method"] == "other"


async def test_a_failed_stage_is_an_error_without_its_message(traced, router):
    router.zoo.fault = BackendFailed(f"it failed on {SECRET}", failed=FailedStage("embed_encoder", "1", "error"))
    await traced.http.post("/v1/embeddings", json={"model": "embed", "input": "w5"})
    root = traced.root()
    assert not root.status.is_ok
    assert root.attributes["error.type"] == "BackendFailed"
    assert root.attributes["zooserve.failed_stage"] == "embed_encoder"
    assert root.attributes["http.response.status_code"] == 502
    assert SECRET not in root.to_json()


@pytest.mark.parametrize("path", ["/metrics", "/health/live", "/health/ready", "/v2/health/live"])
async def test_whoever_watches_the_router_leaves_no_trace(traced, path):
    await traced.http.get(path)
    assert not traced.exporter.get_finished_spans()
