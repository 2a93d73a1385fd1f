"""One trace a request, from the client's span to Triton's stages and the engine's phases, whatever becomes of it."""

import json
import secrets
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from zooserve_router.stages import load_ensembles

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

ZOO = Path(__file__).parents[3] / "model_repository" / "zoo"
CLIENT = "00f067aa0ba902b7"
CLOCKS_NS = 1_000_000
"""Triton reads its clock at other moments than we do ours."""


@dataclass(frozen=True)
class Tree:
    """The spans of one request as `zooserve trace --json` tells them."""

    spans: list[dict[str, Any]]
    request: dict[str, Any]

    def one(self, name: str) -> dict[str, Any]:
        (found,) = [span for span in self.spans if span["name"] == name]
        return found

    def below(self, parent: dict[str, Any]) -> list[dict[str, Any]]:
        children = [span for span in self.spans if span["parent_id"] == parent["span_id"]]
        return sorted(children, key=lambda span: span["start_ns"])

    def names_below(self, name: str) -> list[str]:
        return [span["name"] for span in self.below(self.one(name))]


@dataclass
class Traced:
    """A platform whose requests bring a trace context of their own."""

    platform: Any
    http: httpx.Client

    def post(self, path: str, body: Any, **headers: str) -> tuple[httpx.Response, Tree]:
        trace_id = secrets.token_hex(16)
        answer = self.http.post(path, json=body, headers={"traceparent": f"00-{trace_id}-{CLIENT}-01", **headers})
        return answer, self.tree(answer.headers["x-request-id"], trace_id)

    def tree(self, request_id: str, trace_id: str | None = None) -> Tree:
        done = self.platform.zooserve("trace", request_id, "--json")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        tree = Tree(told["spans"], told["request"])
        if trace_id is not None:
            assert {span["trace_id"] for span in tree.spans} == {trace_id}
            assert tree.one("zooserve.request")["parent_id"] == CLIENT
        return tree


@pytest.fixture(scope="module")
def traced(platform: Any) -> Any:
    with httpx.Client(base_url=platform.url, timeout=60) as http:
        yield Traced(platform, http)


def assert_inside(tree: Tree) -> None:
    """Every span lies in its parent's time; but Triton's own of a request ends once its answer was sent."""
    by_id = {span["span_id"]: span for span in tree.spans}
    for span in tree.spans:
        parent = by_id.get(span["parent_id"])
        if parent is not None:
            assert parent["start_ns"] - CLOCKS_NS <= span["start_ns"], (parent["name"], span["name"])
            if span["name"] != "InferRequest":
                assert span["end_ns"] <= parent["end_ns"] + CLOCKS_NS, (parent["name"], span["name"])
                assert span["end_ns"] - span["start_ns"] <= parent["end_ns"] - parent["start_ns"] + CLOCKS_NS


def assert_stages(tree: Tree, ensemble: str) -> None:
    """Triton's own spans of an ensemble: each step, with its model and version, and what it computed."""
    steps = {step.stage.model: step.stage.version for step in load_ensembles(ZOO)[ensemble].steps}
    (request,) = tree.below(tree.one("infer"))
    (whole,) = tree.below(request)
    assert whole["attributes"]["triton.model_name"] == ensemble
    stages = tree.below(whole)
    found = {
        span["attributes"]["triton.model_name"]: str(span["attributes"]["triton.model_version"]) for span in stages
    }
    assert found == steps
    for stage in stages:
        assert "compute" in [span["name"] for span in tree.below(stage)]


def test_a_rag_query_is_one_tree_from_the_client_to_every_stage(traced: Traced) -> None:
    answer, tree = traced.post("/v1/rag_query", {"input": "where does the vector database live?"})
    assert answer.status_code == 200, answer.text
    whole = tree.one("zooserve.request")
    assert whole["attributes"]["http.route"] == "/v1/rag_query"
    assert str(whole["attributes"]["http.response.status_code"]) == "200"
    assert whole["attributes"]["zooserve.model"] == "rag_query"
    assert whole["attributes"]["zooserve.model_version"] == answer.headers["x-zooserve-version"]
    assert whole["attributes"]["zooserve.slo_class"] == "interactive"
    assert whole["attributes"]["zooserve.outcome"] == "ok"
    assert whole["attributes"]["zooserve.key_id"] == "anonymous"
    assert tree.names_below("zooserve.request") == ["parse", "infer"]
    assert tree.one("infer")["attributes"]["zooserve.model"] == "rag_query"
    assert_stages(tree, "rag_query")
    assert_inside(tree)


def test_a_streamed_chat_is_one_tree_from_the_client_to_the_engines_phases(traced: Traced) -> None:
    body = {"model": "chat", "messages": [{"role": "user", "content": "Name three rivers."}], "max_tokens": 12}
    answer, tree = traced.post("/v1/chat/completions", {**body, "stream": True, "temperature": 0})
    assert answer.text.endswith("data: [DONE]\n\n")
    whole, chat = tree.one("zooserve.request"), tree.one("chat chat")
    assert tree.names_below("zooserve.request") == ["parse", "template", "chat chat"]
    assert chat["attributes"]["gen_ai.operation.name"] == "chat"
    assert chat["attributes"]["gen_ai.request.model"] == "chat"
    assert 0 < int(chat["attributes"]["gen_ai.usage.output_tokens"]) <= 12
    assert chat["attributes"]["zooserve.outcome"] == whole["attributes"]["zooserve.outcome"] == "ok"
    phases = tree.below(chat)
    assert [span["name"] for span in phases] == ["admission", "queue", "prefill", "decode", "delivery"]
    assert {
        (span["attributes"]["zooserve.model"], span["attributes"]["zooserve.model_version"]) for span in phases
    } == {("chat", answer.headers["x-zooserve-version"])}
    assert all(abs(after["start_ns"] - before["end_ns"]) < CLOCKS_NS for before, after in pairwise(phases[1:]))
    assert tree.one("decode")["end_ns"] > tree.one("decode")["start_ns"]
    first_token_s = float(whole["attributes"]["zooserve.time_to_first_token_s"])
    assert 0 < first_token_s <= (whole["end_ns"] - whole["start_ns"]) / 1e9
    assert_inside(tree)


@pytest.mark.parametrize(
    ("path", "body", "ensemble"),
    [
        ("/v1/embeddings", {"model": "embed", "input": "a"}, "embed"),
        ("/v1/rerank", {"model": "rerank", "query": "a", "documents": ["a", "b"]}, "rerank"),
        ("/v1/classify", {"model": "classify", "input": "what a day"}, "classify"),
    ],
)
def test_every_route_to_the_zoo_is_traced_to_its_stages(
    traced: Traced, path: str, body: dict[str, Any], ensemble: str
) -> None:
    answer, tree = traced.post(path, body)
    assert answer.status_code == 200, answer.text
    assert_stages(tree, ensemble)
    assert_inside(tree)


def test_a_request_without_a_context_begins_a_trace_of_its_own(traced: Traced) -> None:
    answer = traced.http.post("/v1/embeddings", json={"model": "embed", "input": "a"})
    tree = traced.tree(answer.headers["x-request-id"])
    assert tree.one("zooserve.request")["parent_id"] == ""
    assert_stages(tree, "embed")


def test_a_refused_request_is_a_trace_and_no_error(traced: Traced) -> None:
    answer, tree = traced.post("/v1/embeddings", {"model": "embed", "input": ["word " * 600]})
    assert answer.status_code == 400
    whole = tree.one("zooserve.request")
    assert whole["attributes"]["zooserve.outcome"] == "InputTooLong"
    assert whole["attributes"]["zooserve.error_code"] == "context_length_exceeded"
    assert not tree.request["failed"]
    assert "word" not in json.dumps(tree.spans), "what callers send stands in no span"


def test_a_request_that_failed_is_kept_as_an_error(traced: Traced) -> None:
    body = {"model": "chat", "messages": [{"role": "user", "content": "Count to a thousand."}], "max_tokens": 400}
    answer, tree = traced.post("/v1/chat/completions", body, **{"x-request-timeout-ms": "300"})
    assert answer.status_code == 504, answer.text
    assert tree.one("zooserve.request")["attributes"]["zooserve.outcome"] == "DeadlineExceeded"
    assert tree.one("chat chat")["attributes"]["zooserve.broken_off_by"] == "deadline"
    assert tree.request["failed"]
    assert tree.request["decision"] == "error"


def test_a_chat_that_is_left_is_a_trace_that_says_so(traced: Traced) -> None:
    body = {"model": "chat", "messages": [{"role": "user", "content": "Count to a thousand."}], "max_tokens": 400}
    with traced.http.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as answer:
        request_id = answer.headers["x-request-id"]
        next(answer.iter_lines())
    tree = traced.tree(request_id)
    assert tree.one("zooserve.request")["attributes"]["zooserve.outcome"] == "cancelled"
    assert tree.one("chat chat")["attributes"]["zooserve.broken_off_by"] == "hang_up"
    assert not tree.request["failed"]


def test_the_drawing_of_a_slow_request_names_its_slow_stage(traced: Traced) -> None:
    texts = [f"sentence number {number} about nothing in particular, and some words more" * 4 for number in range(96)]
    answer, tree = traced.post("/v1/embeddings", {"model": "embed", "input": texts})
    assert answer.status_code == 200
    done = traced.platform.zooserve("trace", answer.headers["x-request-id"])
    assert done.returncode == 0, done.stderr
    (verdict,) = [line for line in done.stdout.splitlines() if line.startswith("slowest")]
    assert "embed_bulk_encoder" in verdict
    assert len([span for span in tree.spans if span["name"] == "infer"]) > 1
    assert_inside(tree)
