"""A question's way through the SDK, over a scripted platform."""

import base64
import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from zooserve import Zoo
from zooserve.errors import SpaceMismatch
from zooserve.sdk import Collection
from zooserve_cli.rag.answering import Cited, Listener, answer
from zooserve_cli.rag.chunks import Passage
from zooserve_cli.rag.ingest import ingest

PASSAGES = [
    Passage("T", f"page {number // 2}", f"Heading {number}", f"passage {number}") for number in range(70)
]  # two of a page
VECTOR = base64.b64encode(struct.pack("<2f", 1.0, 0.0)).decode()


@dataclass
class Platform:
    """Answers every route; notes what was asked."""

    flagged: bool = False
    version: str = "1"
    asked: list[tuple[str, Any]] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        space = f"{int(self.version):016x}"
        if path == "/v1/models/embed":
            card = {"id": "embed", "version": self.version, "task": "embed", "ready": True}
            return httpx.Response(200, json=card | {"dimensions": 2, "embedding_space": space})
        if path.startswith("/v1/models/"):
            return httpx.Response(404, json={"error": {"message": "not served", "code": "model_not_found"}})
        body = json.loads(request.content)
        self.asked.append((path, body))
        model = {"/v1/embeddings": "embed", "/v1/rag_query": "rag_query", "/v2/rerank": "rerank"}.get(path, "chat")
        headers = {"x-zooserve-model": model, "x-zooserve-version": self.version, "x-zooserve-embedding-space": space}
        if model == "chat":
            return httpx.Response(200, text=self._chat(), headers=headers | {"content-type": "text/event-stream"})
        return httpx.Response(200, json=self._answer(model, body) | {"usage": {"prompt_tokens": 1}}, headers=headers)

    def _answer(self, model: str, body: Any) -> Any:
        if model == "embed":
            return {"data": [{"index": place, "embedding": VECTOR} for place, _ in enumerate(body["input"])]}
        if model == "rag_query":
            verdict = {"probability": 0.9 if self.flagged else 0.1, "flagged": self.flagged}
            row = {"index": 0, "embedding": VECTOR, "prompt_injection": verdict}
            return {"data": [row | {"language": {"code": "en", "probability": 0.9}}]}
        scores = [{"index": index, "relevance_score": 1 / (1 + index)} for index, _ in enumerate(body["documents"])]
        return {"results": scores}

    def _chat(self) -> str:
        deltas = [{"role": "assistant", "content": ""}, {"content": "It "}, {"content": "works."}]
        ends = [None, None, "stop"]
        chunks: list[Any] = [
            {"choices": [{"index": 0, "delta": delta, "finish_reason": end}], "usage": None}
            for delta, end in zip(deltas, ends, strict=True)
        ]
        usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
        chunks.append({"choices": [], "usage": usage})
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
def served() -> Platform:
    return Platform()


@pytest.fixture
def zoo(served: Platform) -> Iterator[Zoo]:
    with httpx.Client(transport=httpx.MockTransport(served)) as http, Zoo("http://zoo", http=http) as zoo:
        yield zoo


@pytest.fixture
def docs(zoo: Zoo, tmp_path) -> Collection:
    return zoo.collection("python-docs", path=tmp_path)


class NoBar:
    def __init__(self, total: int) -> None: ...

    def __enter__(self) -> Callable[[int], None]:
        return lambda done: None

    def __exit__(self, *exc: object) -> None: ...


def test_a_corpus_is_embedded_once_and_told_with_its_space(docs, served) -> None:
    first = ingest(docs, PASSAGES, NoBar, rebuild=False)
    again = ingest(docs, PASSAGES, NoBar, rebuild=False)
    assert (first.reused, again.reused) == (False, True)
    assert (first.model, first.space, first.documents, first.chunks) == ("embed@1", "0" * 15 + "1", 35, 70)
    assert [len(body["input"]) for path, body in served.asked] == [70]


def test_another_corpus_replaces_the_first_and_shares_what_it_can(docs, served) -> None:
    ingest(docs, PASSAGES, NoBar, rebuild=False)
    assert ingest(docs, PASSAGES[:6], NoBar, rebuild=False).reused
    assert docs.count() == 6
    longer = [*PASSAGES[:6], Passage("T", "page 9", "Heading", "a new one")]
    assert ingest(docs, longer, NoBar, rebuild=False).embedded == 1


def test_another_version_needs_a_rebuild(zoo, docs, served) -> None:
    ingest(docs, PASSAGES, NoBar, rebuild=False)
    served.version = "2"
    docs = zoo.collection("python-docs", path=docs.where)
    with pytest.raises(SpaceMismatch, match=r"embed@1.*embed@2"):
        ingest(docs, PASSAGES, NoBar, rebuild=False)
    assert ingest(docs, PASSAGES, NoBar, rebuild=True).model == "embed@2"


def test_an_answer_cites_its_passages_and_times_every_step(zoo, docs, served) -> None:
    ingest(docs, PASSAGES, NoBar, rebuild=False)
    heard = Heard()
    done = answer(zoo, docs, "Why?", heard.listener(), allow_flagged=False)
    assert done.text == heard.text == "It works."
    assert done.completion_tokens == 3
    assert list(done.cited) == heard.passages
    assert [passage.number for passage in done.cited] == [1, 2, 3]
    assert {(passage.title, passage.source, passage.heading, passage.text) for passage in done.cited} <= {
        (one.title, one.source, one.heading, one.text) for one in PASSAGES
    }
    assert [step.step for step in done.steps] == ["rag_query", "search", "rerank", "first text", "chat"]
    assert {step.version for step in done.steps if step.step != "search"} == {"1"}
    prompt = served.asked[-1][1]["messages"][-1]["content"]
    assert all(passage.text in prompt for passage in done.cited)
    json.dumps(done.as_json())


def test_a_flagged_question_goes_nowhere_unless_allowed(zoo, docs, served) -> None:
    ingest(docs, PASSAGES[:3], NoBar, rebuild=False)
    served.flagged = True
    refused = answer(zoo, docs, "Ignore this", Heard().listener(), allow_flagged=False)
    assert (refused.refused, refused.text, refused.cited) == (True, "", ())
    assert served.asked[-1][0] == "/v1/rag_query"
    allowed = answer(zoo, docs, "Ignore this", Heard().listener(), allow_flagged=True)
    assert (allowed.refused, allowed.flagged, allowed.text) == (False, True, "It works.")
