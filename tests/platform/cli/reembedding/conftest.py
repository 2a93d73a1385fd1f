"""A platform that is a transport, and a job that runs in this process, without Ray."""

import base64
import hashlib
import importlib.util
import json
import math
import sys
import uuid
from array import array
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import httpx
import pytest
from qdrant_client import QdrantClient, models

from zooserve.sdk.blocking.client import Zoo
from zooserve.sdk.index import Index
from zooserve_cli.reembedding import course, worker
from zooserve_cli.reembedding.course import Course, Summary
from zooserve_cli.reembedding.embedding import Orders
from zooserve_cli.reembedding.job import JobFolder
from zooserve_cli.reembedding.planning import Request, planned
from zooserve_cli.reembedding.store import Address, Store

SIZE = 6
SPACES = {"embed": "bc7ce5e304176975", "next": "2ee4174e26e98073"}
OLD = Index("00000000000000aa", "old", "1", 3)


def vector_of(text: str, model: str) -> list[float]:
    """Another one for every text and model, of unit length."""
    digest = hashlib.sha256(f"{model}\n{text}".encode()).digest()
    values = [byte / 255 + 0.01 for byte in digest[:SIZE]]
    return [value / math.hypot(*values) for value in values]


def answer(request: httpx.Request) -> httpx.Response:
    """What the router answers; texts with `too long` in them are."""
    if request.method == "GET":
        name = request.url.path.removeprefix("/v1/models").strip("/").partition("@")[0]
        cards = {each: card(each) for each in (*SPACES, "rerank")}
        return httpx.Response(200, json=cards[name] if name else {"object": "list", "data": list(cards.values())})
    asked = json.loads(request.content)
    texts = asked["input"] if isinstance(asked["input"], list) else [asked["input"]]
    model = asked["model"].partition("@")[0]
    if any("too long" in text for text in texts):
        error = {"message": "It has 300 tokens.", "code": "context_length_exceeded"}
        return httpx.Response(400, json={"error": error}, headers={"x-request-id": "r"})
    data = [
        {"index": place, "embedding": base64.b64encode(array("f", vector_of(text, model)).tobytes()).decode()}
        for place, text in enumerate(texts)
    ]
    headers = {
        "x-zooserve-model": model,
        "x-zooserve-version": "1",
        "x-zooserve-embedding-space": SPACES[model],
        "x-request-id": "r",
    }
    return httpx.Response(200, json={"data": data, "model": model, "usage": {"prompt_tokens": 1}}, headers=headers)


def card(name: str) -> dict[str, Any]:
    task = "embed" if name in SPACES else "rerank"
    return {"id": name, "version": "1", "task": task, "ready": True, "aliases": [], "limits": {}, "dimensions": SIZE}


class Bench:
    """A local Qdrant with an alias `docs` on a collection of another space, and the command's own parts."""

    def __init__(self, root: Path, http: httpx.Client) -> None:
        self.address = Address(folder=str(root / "store"))
        self.state = root / "state"
        self.zoo = Zoo("http://router", http=http)

    def client(self) -> QdrantClient:
        """The store's; to be closed before a job runs."""
        return QdrantClient(path=self.address.folder)

    def fill(
        self, payloads: dict[Any, Any], *, metadata: dict[str, Any] | None = None, alias: str | None = "docs"
    ) -> None:
        """The source `docs--old`."""
        client = self.client()
        params = models.VectorParams(size=3, distance=models.Distance.COSINE)
        client.create_collection(
            "docs--old", vectors_config=params, metadata=OLD.metadata if metadata is None else metadata
        )
        points = [models.PointStruct(id=point, vector=[1, 2, 3], payload=each) for point, each in payloads.items()]
        if points:
            client.upsert("docs--old", points)
        if alias:
            made = models.CreateAlias(collection_name="docs--old", alias_name=alias)
            client.update_collection_aliases([models.CreateAliasOperation(create_alias=made)])
        client.close()

    def folder(self, name: str = "docs") -> JobFolder:
        """The job's."""
        return JobFolder(self.state, self.address.shown, name)

    def vector_of(self, text: str) -> list[float]:
        """What `embed` makes of it."""
        return vector_of(text, "embed")

    def behind(self, stand_in: Any) -> None:
        """From here on the store is this server."""
        self.address = Address(url=stand_in.url)
        self.client = lambda: Unclosed(stand_in.client)

    def run(self, collection: str = "docs", to: str = "embed", **asked: Any) -> Summary:
        """One run of the command."""
        request = Request(collection, to, self.address, **{"part_rows": 5, **asked})
        folder = self.folder(request.name)
        with folder.held(), Store.opened(self.address, create=bool(request.files)) as store:
            plan = planned(self.zoo, store, request)
            index = plan.index
            orders = Orders("http://router", None, index.release, index.space, index.dimensions, patience_s=0)
            return Course(self.zoo, store, plan, request, folder, orders, Quiet()).run()

    def records(self, name: str = "docs") -> dict[Any, Any]:
        """Everything behind the alias, by id."""
        client = self.client()
        found = client.scroll(name, limit=10_000, with_vectors=True)[0]
        client.close()
        return {record.id: record for record in found}

    def aliases(self) -> dict[str, str]:
        """Where each leads."""
        with Store.opened(self.address) as store:
            return store.aliases()

    def letters(self) -> list[dict[str, Any]]:
        """The dead ones."""
        path = self.folder().letters
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Unclosed:
    """A server's own client: who asks it through this one does not end it."""

    def __init__(self, client: QdrantClient) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        """What it has."""
        return getattr(self._client, name)

    def close(self) -> None:
        """Nothing."""


class Quiet:
    """A screen that nobody looks at."""

    def say(self, text: str) -> None:
        """Nothing."""

    def begin(self, total: int, done: int) -> None:
        """Nothing."""

    def at(self, done: int, dead: int) -> None:
        """Nothing."""


@pytest.fixture(scope="session")
def standins() -> Any:
    """The benchmark's module of stand-ins."""
    path = Path(__file__).parents[4] / "benchmarks" / "reembed_standins.py"
    spec = importlib.util.spec_from_file_location("reembed_standins", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def qdrant(standins: Any) -> Iterator[Any]:
    """A stand-in for a Qdrant server, that runs."""
    stand_in = standins.QdrantStandIn()
    with stand_in.serving():
        yield stand_in
    stand_in.client.close()


@pytest.fixture
def router(standins: Any) -> Iterator[Any]:
    """A stand-in for a platform, that runs."""
    stand_in = standins.RouterStandIn(dimensions=SIZE)
    with stand_in.serving():
        yield stand_in


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """One bench; workers run in this process, one part after the other."""
    http = httpx.Client(transport=httpx.MockTransport(answer))

    def in_process(waiting: Any, rows_of: Any, part_worker: Any, workers: int) -> Iterator[Any]:
        import pyarrow

        for part in sorted(waiting):
            made = part_worker(pyarrow.table({"part": [part], "rows": [rows_of(part)]}))
            yield worker.read_made(*(made[name].to_pylist()[0] for name in ("part", "report", "vectors")))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(course, "embedded", in_process)
        patch.setattr(course, "ray_running", lambda plan: nullcontext())
        patch.setattr(worker, "Zoo", lambda url, api_key: Zoo(url, http=http))
        yield Bench(tmp_path, http)
    http.close()


@pytest.fixture
def payloads() -> dict[Any, Any]:
    """Of a source of 40 points."""
    return made_payloads(40)


def made_payloads(count: int) -> dict[Any, Any]:
    """By ids of both kinds; every seventh cannot be embedded."""
    ids = [number if number % 2 else str(uuid.UUID(int=number << 90)) for number in range(count)]
    texts = [f"text {number}" if number % 7 != 3 else ("", "too long", None)[number % 3] for number in range(count)]
    return {
        point: {"text": text, "n": number, "ratio": number / 3, "nested": {"list": [1, 1.0, None]}}
        for number, (point, text) in enumerate(zip(ids, texts, strict=True))
    }
