"""What stands in for a platform and for a Qdrant server where neither is what is looked at, over HTTP on loopback.

The router's vectors are made of a text's hash, at once, so that what is measured is the command and its Ray. The Qdrant
is qdrant-client's local mode behind the routes that a re-embedding uses: no Qdrant server, which says what it accepts.

    python benchmarks/reembed_standins.py router|qdrant PORT [--dimensions 384]
"""

import argparse
import base64
import hashlib
import json
import re
import threading
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from qdrant_client import QdrantClient, models

__all__ = ["Fault", "QdrantStandIn", "RouterStandIn", "vector_of"]

SPACE = "bc7ce5e304176975"

Fault = Callable[[str, str], tuple[int, dict[str, str], bytes] | None]
"""Of a request's method and path the answer that it gets instead: status, headers, body; None if the true one."""


def vector_of(text: str, dimensions: int) -> list[float]:
    """Of unit length, another one for every text."""
    seed = hashlib.sha256(text.encode()).digest()
    values = [seed[place % len(seed)] / 255 + 0.01 + place % 7 for place in range(dimensions)]
    norm = sum(value * value for value in values) ** 0.5
    return [value / norm for value in values]


class _StandIn:
    """A server in threads of this process; `fault` may be set and taken away while it runs."""

    def __init__(self) -> None:
        self.fault: Fault = lambda method, path: None
        self.asked: list[str] = []
        """Methods and paths, in order."""
        self.url = ""

    def answer(self, method: str, path: str, body: Any) -> tuple[int, dict[str, str], bytes]:
        raise NotImplementedError

    @contextmanager
    def serving(self, port: int = 0) -> Iterator[str]:
        """For the block; yields its base address."""
        server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield self.url
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def _handler(stand_in: _StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _answer(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            written = self.rfile.read(size)
            path = self.path.partition("?")[0]
            stand_in.asked.append(f"{self.command} {path}")
            told = stand_in.fault(self.command, path)
            if told is None:
                told = stand_in.answer(self.command, path, json.loads(written) if written else None)
            status, headers, body = told
            self.send_response(status)
            for name, value in {"content-type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            with suppress(ConnectionError):  # whoever asked has enough of it
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *arguments: object) -> None: ...

    for method in ("GET", "POST", "PUT", "DELETE"):
        setattr(Handler, f"do_{method}", Handler._answer)
    return Handler


class RouterStandIn(_StandIn):
    """A platform that serves `embed`. A text with `too long` in it is."""

    def __init__(self, dimensions: int = 384) -> None:
        super().__init__()
        self._dimensions = dimensions
        self.embedded = 0
        """Texts."""

    def answer(self, method: str, path: str, body: Any) -> tuple[int, dict[str, str], bytes]:
        card = {
            "id": "embed", "version": "1", "task": "embed", "ready": True, "aliases": [], "limits": {},
            "dimensions": self._dimensions,
        }  # fmt: skip
        if method == "GET":
            return 200, {}, json.dumps({"object": "list", "data": [card]} if path == "/v1/models" else card).encode()
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        if any("too long" in text for text in texts):
            error = {"message": "It has 300 tokens.", "code": "context_length_exceeded"}
            return 400, {"x-request-id": "r"}, json.dumps({"error": error}).encode()
        self.embedded += len(texts)
        data = [{"index": place, "embedding": self._written(text)} for place, text in enumerate(texts)]
        headers = {
            "x-zooserve-model": "embed", "x-zooserve-version": "1", "x-zooserve-embedding-space": SPACE,
            "x-request-id": "r",
        }  # fmt: skip
        return 200, headers, json.dumps({"data": data, "model": "embed", "usage": {"prompt_tokens": 1}}).encode()

    def _written(self, text: str) -> str:
        return base64.b64encode(array("f", vector_of(text, self._dimensions)).tobytes()).decode()


class QdrantStandIn(_StandIn):
    """In memory, one request at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.client = QdrantClient(":memory:")
        self._lock = threading.Lock()
        self._routes: list[tuple[str, str, Callable[..., Any]]] = [
            ("GET", r"/collections", self._collections),
            ("GET", r"/aliases", lambda body: self.client.get_aliases()),
            ("POST", r"/collections/aliases", self._change_aliases),
            ("GET", r"/collections/([^/]+)", lambda body, name: self.client.get_collection(name)),
            ("PUT", r"/collections/([^/]+)", self._create),
            ("DELETE", r"/collections/([^/]+)", lambda body, name: self.client.delete_collection(name)),
            ("PUT", r"/collections/([^/]+)/index", self._index),
            ("PUT", r"/collections/([^/]+)/points", self._upsert),
            ("POST", r"/collections/([^/]+)/points/count", lambda body, name: self.client.count(name)),
            ("POST", r"/collections/([^/]+)/points/scroll", self._scroll),
            ("POST", r"/collections/([^/]+)/points/query", self._query),
            ("POST", r"/collections/([^/]+)/points/delete", self._delete),
        ]

    def answer(self, method: str, path: str, body: Any) -> tuple[int, dict[str, str], bytes]:
        for known, pattern, act in self._routes:
            found = re.fullmatch(pattern, path)
            if known == method and found:
                with self._lock:
                    return self._answered(act, body, found.groups())
        return 404, {}, b""

    @staticmethod
    def _answered(act: Callable[..., Any], body: Any, names: tuple[str, ...]) -> tuple[int, dict[str, str], bytes]:
        try:
            result = act(body, *names)
        except (ValueError, KeyError) as exc:
            status = 404 if "not found" in str(exc) else 400
            return status, {}, json.dumps({"status": {"error": str(exc)}, "time": 0.0}).encode()
        written = json.dumps({"time": 0.0, "status": "ok"})[:-1] + f', "result": {_json(result)}}}'
        return 200, {}, written.encode()

    def _collections(self, body: Any) -> Any:
        return self.client.get_collections()

    def _change_aliases(self, body: Any) -> bool:
        steps = models.ChangeAliasesOperation.model_validate(body).actions
        return bool(self.client.update_collection_aliases(steps))

    def _create(self, body: Any, name: str) -> bool:
        said = models.CreateCollection.model_validate(body)
        return bool(
            self.client.create_collection(
                name, vectors_config=said.vectors, sparse_vectors_config=said.sparse_vectors, metadata=said.metadata
            )
        )

    def _index(self, body: Any, name: str) -> Any:
        return self._done()

    def _upsert(self, body: Any, name: str) -> Any:
        self.client.upsert(name, models.PointsList.model_validate(body).points)
        return self._done()

    def _scroll(self, body: Any, name: str) -> Any:
        said = models.ScrollRequest.model_validate(body)
        records, following = self.client.scroll(
            name, offset=said.offset, limit=said.limit or 10, with_payload=said.with_payload or False,
            with_vectors=said.with_vector or False,
        )  # fmt: skip
        return models.ScrollResult(points=records, next_page_offset=following)

    def _query(self, body: Any, name: str) -> Any:
        said = models.QueryRequest.model_validate(body)
        return self.client.query_points(
            name, query=said.query, using=said.using, limit=said.limit or 10, with_payload=said.with_payload or False,
            with_vectors=said.with_vector or False,
        )  # fmt: skip

    def _delete(self, body: Any, name: str) -> Any:
        self.client.delete(name, points_selector=models.PointIdsList.model_validate(body))
        return self._done()

    @staticmethod
    def _done() -> models.UpdateResult:
        return models.UpdateResult(operation_id=0, status=models.UpdateStatus.COMPLETED)


def _json(result: Any) -> str:
    return result.model_dump_json() if hasattr(result, "model_dump_json") else json.dumps(result)


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("router", "qdrant"))
    parser.add_argument("port", type=int)
    parser.add_argument("--dimensions", type=int, default=384)
    asked = parser.parse_args()
    stand_in = RouterStandIn(asked.dimensions) if asked.what == "router" else QdrantStandIn()
    with stand_in.serving(asked.port):
        print(f"serves at {stand_in.url}", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
