"""Where a collection is: a folder that is held, a server that is down or refuses, and what is said of it.

No Qdrant server runs here: a stand-in answers with what one refuses with.
"""

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from qdrant_client import AsyncQdrantClient, QdrantClient
from qdrant_client.http.exceptions import ResponseHandlingException

from zooserve import AsyncZoo, Document
from zooserve.errors import BadInput, StoreRefused, StoreUnavailable
from zooserve.sdk import Upserted
from zooserve.sdk.blocking.stores import StoreAddress
from zooserve.sdk.store_faults import translated

HOLD = "import sys, qdrant_client; c = qdrant_client.QdrantClient(path=sys.argv[1]); print('held', flush=True); input()"


@pytest.fixture
def qdrant() -> Iterator[Callable[[int, bytes], tuple[str, list[dict[str, str]]]]]:
    """Starts a server that answers everything alike; gives its address and the headers of what it is asked."""
    servers: list[ThreadingHTTPServer] = []

    def start(status: int, body: bytes) -> tuple[str, list[dict[str, str]]]:
        seen: list[dict[str, str]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                seen.append({name.lower(): value for name, value in self.headers.items()})
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: object) -> None: ...

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}", seen

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_server_that_is_not_there_is_told_with_its_address(zoo) -> None:
    docs = zoo.collection("docs", url="http://127.0.0.1:1")
    for use in (lambda: docs.search("a"), lambda: docs.upsert(["a"]), docs.count, docs.drop):
        with pytest.raises(StoreUnavailable, match=r"No Qdrant answers at http://127.0.0.1:1.*Is it up"):
            use()


@pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")
@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_is_refused_is_told_and_never_shown(zoo, qdrant, status) -> None:
    url, seen = qdrant(status, b"Must provide an API key or an Authorization bearer token")
    docs = zoo.collection("docs", url=url, api_key="secret")
    with pytest.raises(StoreRefused, match=rf"{url} refuses the key \({status}\).*api_key") as caught:
        docs.search("a")
    assert seen[0]["api-key"] == "secret"
    assert "secret" not in f"{caught.value}{docs!r}"


@pytest.mark.parametrize(
    ("status", "body", "kind", "said"),
    [
        (500, b'{"status": {"error": "disk full"}}', StoreUnavailable, "fails.*disk full"),
        (503, b"warming up", StoreUnavailable, "warming up"),
        (404, b"<html>not here</html>", StoreRefused, "no Qdrant"),
        (400, b'{"status": {"error": "wrong input"}}', StoreRefused, "wrong input"),
        (200, b'{"result": 7}', StoreRefused, "no Qdrant"),
        (200, b"<html>hello</html>", StoreRefused, "refuses|no Qdrant"),
    ],
)
def test_whatever_else_answers_there_is_told(zoo, qdrant, status, body, kind, said) -> None:
    url, _ = qdrant(status, body)
    with pytest.raises(kind, match=said) as caught:
        zoo.collection("docs", url=url).count()
    assert url in str(caught.value)


def test_a_server_that_takes_too_long_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable, match="too long"), translated("http://q"):
        raise ResponseHandlingException(httpx.ReadTimeout("too long"))


@contextmanager
def held(folder: str) -> Iterator[None]:
    """Another process uses the folder."""
    command = [sys.executable, "-c", HOLD, folder]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        try:
            yield
        finally:
            other.communicate("\n", timeout=60)


# qdrant-client leaves its lock file open when it finds it taken.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_a_folder_that_another_process_holds_is_refused_until_that_ends(zoo, tmp_path) -> None:
    docs = zoo.collection("docs", path=tmp_path)
    with held(str(tmp_path)), pytest.raises(StoreUnavailable, match=rf"process.*uses the Qdrant folder {tmp_path}"):
        docs.upsert(["a"])
    assert docs.upsert(["a"]).embedded == 1


def test_a_folder_that_cannot_be_made_is_told(zoo, tmp_path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StoreRefused, match="file cannot be opened"):
        zoo.collection("docs", path=tmp_path / "file").count()


def test_a_clients_that_was_closed_is_told(zoo) -> None:
    client = QdrantClient(":memory:")
    docs = zoo.collection("docs", client=client)
    docs.upsert(["a"])
    client.close()
    with pytest.raises(StoreRefused, match="closed"):
        docs.count()


def test_threads_share_a_local_collection(zoo, tmp_path) -> None:
    docs = zoo.collection("docs", path=tmp_path)
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            docs.upsert([{"id": number * 1000 + place, "text": f"text {number} {place}"} for place in range(20)])
            docs.search(f"text {number}")
        except BaseException as exc:
            failed.append(exc)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert docs.count() == 120


def test_a_folder_may_be_let_go_of_while_others_use_it(zoo, tmp_path) -> None:
    """Whoever is overtaken is told so, by an error of ours, and never finds the folder held by this very process."""
    docs, failed = zoo.collection("docs", path=tmp_path), []
    docs.upsert(["a duck"])

    def use() -> None:
        for _ in range(30):
            try:
                docs.count()
            except StoreRefused:
                pass
            except BaseException as exc:
                failed.append(exc)

    threads = [threading.Thread(target=use) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(15):
        docs.close()
    for thread in threads:
        thread.join()
    assert failed == []
    assert docs.count() == 1


def test_a_disk_that_is_full_is_told(docs, monkeypatch) -> None:
    docs.upsert(["a"])
    client = docs._stores._open[docs._address]._client

    def full(*arguments: object, **named: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(client, "upsert", full)
    with pytest.raises(StoreUnavailable, match=r"disk is full.*Nothing was stored"):
        docs.upsert(["b"])


def test_an_address_does_not_show_its_key() -> None:
    assert "secret" not in repr(StoreAddress.of(None, "http://q", "secret", None))


async def test_the_asynchronous_twin_does_the_same(served, tmp_path) -> None:
    async with httpx.AsyncClient(transport=httpx.MockTransport(served)) as http:
        async with AsyncZoo("http://zoo", http=http) as zoo:
            docs = zoo.collection("docs", path=tmp_path, sparse="embed_sparse")
            assert await docs.search("nothing yet") == []
            assert await docs.upsert([Document("book", ["ducks swim", "tax forms"])]) == Upserted(embedded=2)
            assert await docs.upsert([Document("book", ["ducks swim"])]) == Upserted(unchanged=1, removed=1)
            found = await asyncio.gather(*(docs.search("ducks", 1, rerank=3) for _ in range(5)))
            assert {hits[0].text for hits in found} == {"ducks swim"}
            assert await docs.sync(["geese"]) == Upserted(embedded=1, removed=1)
            assert (await docs.describe()).points == 1
            await docs.aclose()
            assert await docs.count() == 1
        QdrantClient(path=str(tmp_path)).close()


async def test_each_half_takes_its_own_kind_of_client(zoo) -> None:
    awaiting = AsyncQdrantClient(":memory:")
    with closing(QdrantClient(":memory:")) as blocking:
        async with AsyncZoo("http://zoo") as other:
            with pytest.raises(BadInput, match=r"QdrantClient; it must be a qdrant_client.AsyncQdrantClient"):
                other.collection("docs", client=blocking)
            assert "docs" in repr(other.collection("docs", client=awaiting))
        with pytest.raises(BadInput, match=r"AsyncQdrantClient; it must be a qdrant_client.QdrantClient"):
            zoo.collection("docs", client=awaiting)
    await awaiting.close()
