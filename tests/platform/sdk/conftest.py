"""Both clients over one transport: what holds for the one holds for the other."""

import asyncio
import base64
import json
import struct
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from zooserve import AsyncZoo, Zoo

Handler = Callable[[httpx.Request], httpx.Response]
Calling = Callable[..., Any]


@pytest.fixture(params=["blocking", "aio"])
def calling(request: pytest.FixtureRequest) -> Calling:
    """`calling(handler, lambda zoo: zoo.embed("a"), **arguments of the client)` returns what the call does."""
    return _blocking if request.param == "blocking" else _aio


@pytest.fixture
def platform_of() -> Callable[..., "Platform"]:
    """A handler that answers as the platform does, and remembers what it was asked."""
    return Platform


def _blocking(handler: Handler | None, use: Callable[[Any], Any], **options: Any) -> Any:
    if handler is None:
        with Zoo(**options) as zoo:
            return use(zoo)
    with httpx.Client(transport=httpx.MockTransport(handler)) as http, Zoo("http://zoo", http=http, **options) as zoo:
        return use(zoo)


def _aio(handler: Handler | None, use: Callable[[Any], Any], **options: Any) -> Any:
    async def within_loop() -> Any:
        if handler is None:
            async with AsyncZoo(**options) as zoo:
                return await use(zoo)
        transport = httpx.MockTransport(handler)
        async with httpx.AsyncClient(transport=transport) as http, AsyncZoo("http://zoo", http=http, **options) as zoo:
            return await use(zoo)

    return asyncio.run(within_loop())


class Platform:
    """Answers each request by the next of `first`, and then as the platform would: a vector tells its text's length."""

    def __init__(self, *first: httpx.Response | Exception, version: Callable[[int], str] = lambda place: "1") -> None:
        self.requests: list[httpx.Request] = []
        self._first = list(first)
        self._lock = threading.Lock()
        self._version = version

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """What was sent, in the order of its arrival."""
        return [json.loads(request.content) for request in self.requests]

    def __call__(self, request: httpx.Request) -> httpx.Response:
        with self._lock:
            place = len(self.requests)
            self.requests.append(request)
        if place < len(self._first):
            answer = self._first[place]
            if isinstance(answer, Exception):
                raise answer
            return answer
        body = json.loads(request.content) if request.content else {}
        headers = {
            "x-request-id": request.headers["x-request-id"],
            "x-zooserve-model": str(body.get("model", "embed")).partition("@")[0],
            "x-zooserve-version": self._version(place),
            "x-zooserve-embedding-space": f"space{self._version(place)}",
        }
        return httpx.Response(200, headers=headers, json=_ANSWERS[request.url.path](body))


def _vectors(body: dict[str, Any]) -> dict[str, Any]:
    rows = [
        {"index": place, "embedding": base64.b64encode(struct.pack("<2f", len(text), place)).decode()}
        for place, text in enumerate(body["input"])
    ]
    # Nothing promises their order.
    return {"data": rows[::-1], "usage": {"prompt_tokens": len(rows)}}


def _sparse(body: dict[str, Any]) -> list[Any]:
    return [[{"index": 3, "value": 0.5}, {"index": len(text), "value": 1.5}] for text in body["inputs"]]


def _ranking(body: dict[str, Any]) -> dict[str, Any]:
    scores = [min(1.0, len(text) / 1000) for text in body["documents"]]
    order = sorted(range(len(scores)), key=lambda place: -scores[place])
    results = [{"index": place, "relevance_score": scores[place]} for place in order]
    return {"results": results, "usage": {"prompt_tokens": len(scores)}}


def _labels(body: dict[str, Any]) -> dict[str, Any]:
    rows = [
        {"index": place, "label": None, "labels": [], "scores": {"rude": 0.25}, "probs": [0.25]}
        for place, _ in enumerate(body["input"])
    ]
    return {"data": rows, "usage": {"prompt_tokens": len(rows)}}


def _reading(body: dict[str, Any]) -> dict[str, Any]:
    row = {
        "index": 0,
        "embedding": base64.b64encode(struct.pack("<2f", len(body["input"]), 0)).decode(),
        "prompt_injection": {"probability": 0.75, "flagged": True},
        "language": {"code": "en", "probability": 0.5},
    }
    return {"data": [row], "usage": {"prompt_tokens": 4}}


def _card(body: dict[str, Any]) -> dict[str, Any]:
    return {"id": "embed", "version": "1", "task": "embed", "ready": True, "embedding_space": "space1"}


_ANSWERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "/v1/embeddings": _vectors,
    "/embed_sparse": _sparse,
    "/v2/rerank": _ranking,
    "/v1/classify": _labels,
    "/v1/rag_query": _reading,
    "/v1/models": lambda body: {"data": [_card(body)]},
    "/v1/models/embed@1": _card,
    "/v1/models/a/b?": _card,
}
