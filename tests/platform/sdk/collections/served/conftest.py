"""A stand-in for a Qdrant server: the REST calls that the SDK makes, and no others, over the local mode's collections.

There is no Qdrant server on the machines that these tests run on. What goes over the wire is held to qdrant-client's
own models, which its authors make from the server's OpenAPI document: a request body with a field that they do not
have is a 400, an answer that they cannot read fails the test. It proves the transport and what is made of its failures,
not a server's behaviour.
"""

import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError
from qdrant_client import QdrantClient
from qdrant_client.http.models import models

OK = models.UpdateStatus.COMPLETED


@dataclass(frozen=True)
class Refusal(Exception):
    """What a server refuses with."""

    status: int
    error: str
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Qdrant:
    """Its state, and what is to go wrong. `fault` sees each request first, and raises a Refusal or returns bytes."""

    url: str = ""
    key: str | None = None
    keeps_metadata: bool = True
    fault: Callable[[str, str], bytes | None] = lambda method, path: None
    asked: list[str] = field(default_factory=list)
    client: QdrantClient = field(default_factory=lambda: QdrantClient(":memory:"))
    lock: threading.RLock = field(default_factory=threading.RLock)

    def answer(self, method: str, path: str, body: bytes) -> BaseModel:
        """What the first route that fits says. Raises Refusal."""
        for route_method, pattern, request, response, act in ROUTES:
            if method == route_method and (found := re.fullmatch(pattern, path)):
                result = act(self, found.groupdict().get("name", ""), _read(request, body))
                return response(time=0.001, status="ok", result=result)  # type: ignore[no-any-return]
        raise Refusal(404, f"no route {method} {path}")

    def require(self, name: str) -> str:
        """A collection or an alias that is there."""
        if not self.client.collection_exists(name):
            raise Refusal(404, f"Not found: Collection `{name}` doesn't exist!")
        return name

    def create(self, name: str, given: Any) -> bool:
        if self.client.collection_exists(name):
            raise Refusal(409, f"Wrong input: Collection `{name}` already exists!")
        return self.client.create_collection(
            name,
            vectors_config=given.vectors,
            sparse_vectors_config=given.sparse_vectors,
            metadata=given.metadata if self.keeps_metadata else None,
        )

    def switch(self, name: str, given: Any) -> bool:
        for action in given.actions:
            if isinstance(action, models.CreateAliasOperation):
                self.require(action.create_alias.collection_name)
        return self.client.update_collection_aliases(given.actions)

    def insert(self, name: str, given: Any) -> Any:
        assert isinstance(given, models.PointsList)
        return self.client.upsert(self.require(name), given.points)

    def scroll(self, name: str, given: Any) -> Any:
        points, following = self.client.scroll(
            self.require(name),
            scroll_filter=given.filter,
            limit=given.limit,
            offset=given.offset,
            with_payload=given.with_payload,
            with_vectors=given.with_vector,
        )
        return models.ScrollResult(points=points, next_page_offset=following)

    def query(self, name: str, given: Any) -> Any:
        return self.client.query_points(
            self.require(name),
            query=given.query,
            prefetch=given.prefetch,
            query_filter=given.filter,
            limit=given.limit,
            with_payload=given.with_payload,
        )

    def update(self, name: str, given: Any) -> Any:
        return self.client.batch_update_points(self.require(name), given.operations)

    def retrieve(self, name: str, given: Any) -> Any:
        return self.client.retrieve(self.require(name), given.ids, with_payload=given.with_payload)

    def delete(self, name: str, given: Any) -> Any:
        return self.client.delete(self.require(name), given)

    def index(self, name: str, given: Any) -> Any:
        assert (given.field_name, given.field_schema) == ("document", "keyword")
        self.require(name)
        return models.UpdateResult(operation_id=1, status=OK)


def _read(request: Any, body: bytes) -> Any:
    if request is None:
        return None
    try:
        return TypeAdapter(request).validate_json(body)
    except ValidationError as exc:
        raise Refusal(400, f"Format error in JSON body: {exc}") from exc


NAME = "/collections/(?P<name>[^/]+)"
ROUTES: list[tuple[str, str, Any, Any, Callable[[Qdrant, str, Any], Any]]] = [
    ("GET", "/aliases", None, models.InlineResponse20012, lambda q, name, given: q.client.get_aliases()),
    ("GET", "/collections", None, models.InlineResponse2006, lambda q, name, given: q.client.get_collections()),
    ("GET", f"{NAME}/exists", None, models.InlineResponse2009,
     lambda q, name, given: models.CollectionExistence(exists=q.client.collection_exists(name))),
    ("POST", "/collections/aliases", models.ChangeAliasesOperation, models.InlineResponse2001, Qdrant.switch),
    ("GET", NAME, None, models.InlineResponse2007, lambda q, name, given: q.client.get_collection(q.require(name))),
    ("PUT", NAME, models.CreateCollection, models.InlineResponse2001, Qdrant.create),
    ("PATCH", NAME, models.UpdateCollection, models.InlineResponse2001,
     lambda q, name, given: not q.keeps_metadata or q.client.update_collection(name, metadata=given.metadata)),
    ("DELETE", NAME, None, models.InlineResponse2001, lambda q, name, given: q.client.delete_collection(name)),
    ("PUT", f"{NAME}/index", models.CreateFieldIndex, models.InlineResponse2008, Qdrant.index),
    ("PUT", f"{NAME}/points", models.PointInsertOperations, models.InlineResponse2008, Qdrant.insert),
    ("POST", f"{NAME}/points", models.PointRequest, models.InlineResponse20017, Qdrant.retrieve),
    ("POST", f"{NAME}/points/scroll", models.ScrollRequest, models.InlineResponse20019, Qdrant.scroll),
    ("POST", f"{NAME}/points/count", models.CountRequest, models.InlineResponse20020,
     lambda q, name, given: q.client.count(q.require(name), count_filter=given.filter, exact=given.exact)),
    ("POST", f"{NAME}/points/delete", models.PointsSelector, models.InlineResponse2008, Qdrant.delete),
    ("POST", f"{NAME}/points/batch", models.UpdateOperations, models.InlineResponse20018, Qdrant.update),
    ("POST", f"{NAME}/points/query", models.QueryRequest, models.InlineResponse20022, Qdrant.query),
]  # fmt: skip


def _handler(qdrant: Qdrant) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def handle_one(self) -> None:
            path = self.path.partition("?")[0]
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            try:
                sent = qdrant.fault(self.command, path)
                if qdrant.key is not None and self.headers.get("api-key") != qdrant.key:
                    raise Refusal(401, "Must provide an API key or an Authorization bearer token")
                with qdrant.lock:
                    qdrant.asked.append(f"{self.command} {path}")
                    if sent is None:
                        sent = qdrant.answer(self.command, path, body).model_dump_json(exclude_none=True).encode()
                self._send(200, sent, {})
            except Refusal as refusal:
                told = json.dumps({"status": {"error": refusal.error}, "time": 0.001}).encode()
                self._send(refusal.status, told, refusal.headers)

        def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None: ...

    for verb in ("GET", "PUT", "POST", "PATCH", "DELETE"):
        setattr(Handler, f"do_{verb}", Handler.handle_one)
    return Handler


@pytest.fixture
def qdrant() -> Iterator[Qdrant]:
    """A server that is up, and empty."""
    state = Qdrant()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(state))
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield state
    server.shutdown()
    thread.join()
    server.server_close()
    state.client.close()


@pytest.fixture
def refusal() -> type[Refusal]:
    """To be raised by a fault."""
    return Refusal


@pytest.fixture
def docs(zoo, qdrant):
    """An empty collection there."""
    return zoo.collection("docs", url=qdrant.url)
