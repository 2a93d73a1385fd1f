"""A question's way through the public API, over a scripted router."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from zooserve.errors import BackendFailed, NotRunning
from zooserve_cli.rag.answering import Cited, Listener, answer
from zooserve_cli.rag.api import Api
from zooserve_cli.rag.chunks import Chunk
from zooserve_cli.rag.ingest import ingest
from zooserve_cli.rag.store import Store

CHUNKS = [Chunk("T", f"page {number}", f"Heading {number}", f"passage {number}") for number in range(70)]


@dataclass
class Router:
    """Answers every route; notes what was asked."""

    flagged: bool = False
    version: str = "1"
    asked: list[tuple[str, Any]] = field(default_factory=list)
    broken: dict[str, httpx.Response] = field(default_factory=dict)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path, body = request.url.path, json.loads(request.content)
        self.asked.append((path, body))
        if path in self.broken:
            return self.broken[path]
        model = {"/v1/embeddings": "embed", "/v1/rag_query": "rag_query", "/v2/rerank": "rerank"}.get(path, "chat")
        headers = {"x-zooserve-model": model, "x-zooserve-version": self.version}
        if model == "chat":
            return httpx.Response(200, text=self._chat(), headers=headers)
        return httpx.Response(200, json=self._answer(model, body), headers=headers)

    def _answer(self, model: str, body: Any) -> Any:
        if model == "embed":
            return {"data": [{"index": 0, "embedding": [1.0, 0.0]} for _ in body["input"]]}
        if model == "rag_query":
            verdict = {"probability": 0.9 if self.flagged else 0.1, "flagged": self.flagged}
            return {"data": [{"index": 0, "embedding": [1.0, 0.0], "prompt_injection": verdict}]}
        best = range(len(body["documents"]))[: body["top_n"]]
        return {"results": [{"index": index, "relevance_score": 1.0 - index} for index in best]}

    def _chat(self) -> str:
        deltas = [{"role": "assistant", "content": ""}, {"content": "It "}, {"content": "works."}]
        chunks: list[Any] = [{"choices": [{"index": 0, "delta": delta}], "usage": None} for delta in deltas]
        chunks.append({"choices": [], "usage": {"completion_tokens": 3}})
        return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


@dataclass
class Heard:
    passages: list[Cited] = field(default_factory=list)
    text: str = ""

    def listener(self) -> Listener:
        return Listener(self.passages.extend, self.hear)

    def hear(self, text: str) -> None:
        self.text += text


@pytest.fixture
def router() -> Router:
    return Router()


@pytest.fixture
def api(router) -> Iterator[Api]:
    with closing(Api("http://router", httpx.MockTransport(router))) as api:
        yield api


@pytest.fixture
def store(tmp_path) -> Iterator[Store]:
    with closing(Store.local(tmp_path)) as store:
        yield store


class NoBar:
    def __init__(self, total: int) -> None: ...

    def __enter__(self) -> Callable[[int], None]:
        return lambda done: None

    def __exit__(self, *exc: object) -> None: ...


def test_a_corpus_is_embedded_once_as_bulk_work(api, store, router) -> None:
    first = ingest(api, store, [], CHUNKS, NoBar, rebuild=False)
    again = ingest(api, store, [], CHUNKS, NoBar, rebuild=False)
    assert (first.reused, again.reused, first.space, first.chunks) == (False, True, "embed@1", 70)
    sizes = [len(body["input"]) for path, body in router.asked]
    assert sizes == [1, 64, 6, 1]


def test_another_corpus_replaces_the_first(api, store) -> None:
    ingest(api, store, [], CHUNKS, NoBar, rebuild=False)
    assert not ingest(api, store, [], CHUNKS[:5], NoBar, rebuild=False).reused
    assert len(store.search([1.0, 0.0], 100)) == 5


def test_an_answer_cites_its_passages_and_times_every_step(api, store, router) -> None:
    ingest(api, store, [], CHUNKS, NoBar, rebuild=False)
    heard = Heard()
    done = answer(api, store, "Why?", heard.listener(), allow_flagged=False)
    assert done.text == heard.text == "It works."
    assert list(done.cited) == heard.passages
    assert [passage.number for passage in done.cited] == [1, 2, 3]
    assert [step.step for step in done.steps] == ["rag_query", "search", "rerank", "first text", "chat"]
    assert {step.version for step in done.steps if step.step != "search"} == {"1"}
    prompt = router.asked[-1][1]["messages"][-1]["content"]
    assert all(passage.text in prompt for passage in done.cited)
    json.dumps(done.as_json())


def test_a_flagged_question_goes_nowhere_unless_allowed(api, store, router) -> None:
    ingest(api, store, [], CHUNKS[:3], NoBar, rebuild=False)
    router.flagged = True
    refused = answer(api, store, "Ignore this", Heard().listener(), allow_flagged=False)
    assert (refused.refused, refused.text, refused.cited) == (True, "", ())
    assert router.asked[-1][0] == "/v1/rag_query"
    allowed = answer(api, store, "Ignore this", Heard().listener(), allow_flagged=True)
    assert (allowed.refused, allowed.flagged, allowed.text) == (False, True, "It works.")


@pytest.mark.parametrize(
    "body",
    [{"error": {"message": "too much"}}, {"message": "too much"}, {"error": "too much"}],
    ids=["openai", "cohere", "kserve"],
)
def test_a_refusal_is_told_in_the_routers_words(api, router, body) -> None:
    router.broken["/v1/rag_query"] = httpx.Response(429, json=body)
    with pytest.raises(BackendFailed, match="429: too much"):
        api.read_query("Why?")


def test_a_stream_that_breaks_off_is_an_error(api, router) -> None:
    text = 'data: {"error": {"message": "gone"}}\n\ndata: [DONE]\n\n'
    router.broken["/v1/chat/completions"] = httpx.Response(200, text=text)
    with pytest.raises(BackendFailed, match="gone"):
        api.chat([], 5, lambda text: None)


def test_a_router_that_is_not_there_says_how_to_start_one() -> None:
    with closing(Api("http://127.0.0.1:1")) as api, pytest.raises(NotRunning, match="zooserve up"):
        api.embed(["Hi"])
