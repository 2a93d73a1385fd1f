"""A platform behind the SDK's transport: a vector counts words by their hashes. It notes what it is asked."""

import base64
import json
import struct
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import httpx
import pytest
from qdrant_client import QdrantClient

from zooserve import Zoo

SPACES = {"embed": "aaaaaaaaaaaaaaaa", "embed_other": "bbbbbbbbbbbbbbbb", "embed_wide": "cccccccccccccccc"}
SPARSE_SPACE = "dddddddddddddddd"


@dataclass
class FakePlatform:
    """Answers the routes that collections use. Texts of more than `max_words` words are refused."""

    versions: dict[str, str] = field(default_factory=dict)
    """Other than 1, by model; another version is another space."""
    dimensions: dict[str, int] = field(default_factory=lambda: {"embed": 16, "embed_other": 16, "embed_wide": 24})
    sparse_version: str = "1"
    max_words: int = 50
    max_sparse_words: int = 50
    requests: list[httpx.Request] = field(default_factory=list)
    fails_after: int | None = None
    """So many embedding requests are answered, then none."""

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        path = request.url.path
        if path.startswith("/v1/models/"):
            return self._card(path.removeprefix("/v1/models/"))
        body = json.loads(request.content)
        route = {
            "/v1/embeddings": self._embeddings,
            "/embed_sparse": self._sparse,
            "/v2/rerank": self._rerank,
            "/v1/rag_query": self._rag_query,
        }[path]
        return route(request, body)

    @property
    def embedded(self) -> list[str]:
        """Every passage that was embedded, in order."""
        bodies = self.bodies("/v1/embeddings")
        return [text for body in bodies if body.get("input_type") == "passage" for text in _texts(body["input"])]

    def bodies(self, path: str) -> list[Any]:
        """What this route was asked."""
        return [json.loads(request.content) for request in self.requests if request.url.path == path]

    def space(self, model: str) -> str:
        """Of the version that is served."""
        version = self.versions.get(model, "1")
        return SPACES[model] if version == "1" else f"{crc32(f'{model}{version}'.encode()):016x}"

    def _card(self, asked: str) -> httpx.Response:
        name, _, pinned = asked.partition("@")
        version = self.sparse_version if name == "embed_sparse" else self.versions.get(name, "1")
        if (pinned and pinned != version) or name not in (*SPACES, "embed_sparse", "rerank"):
            return _refusal(404, "model_not_found", f"The model '{asked}' does not exist.")
        card: dict[str, Any] = {"id": name, "version": version, "task": "embed", "ready": True, "limits": {}}
        if name == "rerank":
            return httpx.Response(200, json=card | {"task": "rerank"})
        if name == "embed_sparse":
            space = SPARSE_SPACE if version == "1" else "e" * 16
            return httpx.Response(200, json=card | {"task": "sparse", "dimensions": 1000, "embedding_space": space})
        return httpx.Response(
            200, json=card | {"dimensions": self.dimensions[name], "embedding_space": self.space(name)}
        )

    def _embeddings(self, request: httpx.Request, body: Any) -> httpx.Response:
        name = body["model"].partition("@")[0]
        refusal = self._refusal(request, self.space(name), _texts(body["input"]))
        if refusal is not None:
            return refusal
        size = self.dimensions[name]
        data = [{"index": place, "embedding": _base64(text, size)} for place, text in enumerate(_texts(body["input"]))]
        return self._answer(name, self.space(name), {"data": data, "usage": {"prompt_tokens": 1}})

    def _sparse(self, request: httpx.Request, body: Any) -> httpx.Response:
        space = SPARSE_SPACE if self.sparse_version == "1" else "e" * 16
        refusal = self._refusal(request, space, [])
        if refusal is not None:
            return refusal
        for place, text in enumerate(_texts(body["inputs"])):
            if (words := len(text.split())) > self.max_sparse_words:
                said = {"error": f"`inputs[{place}]` has {words} tokens.", "error_type": "Validation"}
                headers = {"x-request-id": "r", "x-zooserve-error-code": "context_length_exceeded"}
                return httpx.Response(400, json=said, headers=headers)
        rows = [
            [{"index": index, "value": 1.0} for index in sorted({crc32(word.encode()) % 1000 for word in text.split()})]
            for text in _texts(body["inputs"])
        ]
        return self._answer("embed_sparse", space, rows)

    def _rerank(self, request: httpx.Request, body: Any) -> httpx.Response:
        wanted = set(body["query"].split())
        scores = [len(wanted & set(text.split())) / (1 + len(text.split())) for text in body["documents"]]
        order = sorted(range(len(scores)), key=lambda place: -scores[place])
        results = [{"index": place, "relevance_score": scores[place]} for place in order]
        return self._answer("rerank", None, {"results": results, "usage": {"prompt_tokens": 1}})

    def _rag_query(self, request: httpx.Request, body: Any) -> httpx.Response:
        row = {
            "index": 0,
            "embedding": _base64(body["input"], self.dimensions["embed"]),
            "prompt_injection": {"probability": 0.1, "flagged": False},
            "language": {"code": "en", "probability": 0.9},
        }
        return self._answer("rag_query", self.space("embed"), {"data": [row], "usage": {"prompt_tokens": 1}})

    def _refusal(self, request: httpx.Request, space: str, texts: list[str]) -> httpx.Response | None:
        wanted = request.headers.get("x-zooserve-embedding-space")
        if wanted not in (None, space):
            return _refusal(409, "embedding_space_mismatch", f"asked for {wanted}, served is {space}")
        if self.fails_after is not None and len(self.bodies("/v1/embeddings")) > self.fails_after:
            return _refusal(502, "backend_failed", "the stage embed_encoder failed")
        for place, text in enumerate(texts):
            if len(text.split()) > self.max_words:
                words = len(text.split())
                return _refusal(400, "context_length_exceeded", f"`input[{place}]` has {words} tokens.")
        return None

    def _answer(self, model: str, space: str | None, body: Any) -> httpx.Response:
        headers = {"x-zooserve-model": model, "x-zooserve-version": self.versions.get(model, "1")}
        if space is not None:
            headers["x-zooserve-embedding-space"] = space
        return httpx.Response(200, json=body, headers=headers)


@pytest.fixture
def served() -> FakePlatform:
    """The platform."""
    return FakePlatform()


@pytest.fixture
def zoo(served: FakePlatform) -> Iterator[Zoo]:
    """A client of it that tries nothing twice."""
    with httpx.Client(transport=httpx.MockTransport(served)) as http, Zoo("http://zoo", http=http, retries=0) as zoo:
        yield zoo


@pytest.fixture
def docs(zoo: Zoo, tmp_path):
    """An empty collection in Qdrant's local mode."""
    return zoo.collection("docs", path=tmp_path / "qdrant")


@pytest.fixture
def in_memory(zoo: Zoo):
    """An empty collection in no folder, for many points: a folder's files take a commit for each."""
    with closing(QdrantClient(":memory:")) as client:
        yield zoo.collection("docs", client=client)


def _texts(given: str | list[str]) -> list[str]:
    return [given] if isinstance(given, str) else given


def _base64(text: str, size: int) -> str:
    counts = [0.01] * size
    for word in text.split():
        counts[crc32(word.encode()) % size] += 1.0
    length = sum(count * count for count in counts) ** 0.5
    return base64.b64encode(struct.pack(f"<{size}f", *(count / length for count in counts))).decode()


def _refusal(status: int, code: str, message: str) -> httpx.Response:
    body = {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}
    return httpx.Response(status, json=body, headers={"x-request-id": "r"})
