"""The road to a Qdrant server, and what is said of each way that it fails.

Transport alone: a stand-in answers (see conftest), and no Qdrant server was ever run here.
"""

import threading

import pytest

from zooserve import Chunk, Document
from zooserve.errors import CollectionError, StoreRefused, StoreUnavailable
from zooserve.sdk import Upserted
from zooserve.sdk.blocking import stores

pytestmark = pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")
A = "a" * 16


def test_all_that_a_collection_does_goes_over_the_wire(zoo, qdrant) -> None:
    docs = zoo.collection("docs", url=qdrant.url, sparse="embed_sparse")
    book = Document("book", ["ducks swim on ponds", "tax forms are due"], {"lang": "en"})
    assert docs.upsert([book, Chunk("geese fly", id=7)]) == Upserted(embedded=3)
    assert docs.upsert([book]) == Upserted(unchanged=2)
    assert docs.upsert([Document("book", ["tax forms are due"], {"lang": "de"})]) == Upserted(updated=1, removed=1)
    assert [hit.text for hit in docs.search("geese", 1, rerank=2)] == ["geese fly"]
    assert [hit.text for hit in docs.search("geese", 5, filter={"lang": "de"})] == ["tax forms are due"]
    assert docs.describe().physical == f"docs--{A}-{'d' * 16}"
    assert docs.delete([7, "nobody"]) == 1
    assert docs.sync(["a swan"]) == Upserted(embedded=1, removed=1)
    assert docs.count() == 1
    assert docs.drop()
    assert not docs.drop()
    assert qdrant.client.get_collections().collections == []
    assert f"PUT /collections/docs--{A}-{'d' * 16}/index" in qdrant.asked


def test_a_collection_of_others_is_adopted_over_the_wire(zoo, qdrant) -> None:
    from qdrant_client import models

    vector = models.VectorParams(size=16, distance=models.Distance.COSINE)
    qdrant.client.create_collection("theirs", vectors_config=vector)
    points = [models.PointStruct(id=1, vector=zoo.embed("a duck")[0], payload={"body": "a duck"})]
    qdrant.client.upsert("theirs", points)
    theirs = zoo.collection("theirs", url=qdrant.url, adopt=True, text_key="body")
    assert theirs.search("a duck", 1)[0].text == "a duck"


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("use", ["count", "upsert", "drop"])
def test_a_wrong_key_is_told_and_never_shown(zoo, qdrant, refusal, status, use) -> None:
    def refuse(method: str, path: str) -> None:
        raise refusal(status, "Invalid API key or JWT")

    qdrant.fault = refuse
    docs = zoo.collection("docs", url=qdrant.url, api_key="secret")
    with pytest.raises(StoreRefused, match=rf"refuses the key \({status}\).*api_key=") as caught:
        docs.upsert(["a"]) if use == "upsert" else getattr(docs, use)()
    assert "secret" not in str(caught.value)


def test_the_right_key_opens(zoo, qdrant) -> None:
    qdrant.key = "secret"
    assert zoo.collection("docs", url=qdrant.url, api_key="secret").upsert(["a"]).embedded == 1
    with pytest.raises(StoreRefused, match="refuses the key"):
        zoo.collection("docs", url=qdrant.url).count()


def test_a_server_that_fails_in_the_middle_says_what_is_stored_and_the_next_call_goes_on(
    docs, served, qdrant, refusal
) -> None:
    stored = 0

    def fail_the_third(method: str, path: str) -> None:
        nonlocal stored
        stored += (method, path.rpartition("/")[2]) == ("PUT", "points")
        if stored == 3 and method == "PUT":
            raise refusal(500, "Service internal error: No space left on device")

    qdrant.fault = fail_the_third
    items = [Chunk(f"text {number}", id=number) for number in range(700)]
    with pytest.raises(StoreUnavailable, match=r"fails \(500\).*No space left.*512 chunks were in the collection"):
        docs.upsert(items)
    qdrant.fault = lambda method, path: None
    assert docs.upsert(items) == Upserted(embedded=700 - 512, unchanged=512)


def test_a_server_that_is_slow_is_told(zoo, qdrant, monkeypatch) -> None:
    monkeypatch.setattr(stores, "_TIMEOUT_S", 1)
    go = threading.Event()

    def wait(method: str, path: str) -> None:
        go.wait(60)

    qdrant.fault = wait
    try:
        with pytest.raises(StoreUnavailable, match=rf"{qdrant.url} took too long to answer.*Try again"):
            zoo.collection("docs", url=qdrant.url).count()
    finally:
        go.set()


def test_a_server_with_too_much_to_do_says_when_to_come_back(docs, qdrant, refusal) -> None:
    def busy(method: str, path: str) -> None:
        raise refusal(429, "Too many requests", {"Retry-After": "7"})

    qdrant.fault = busy
    with pytest.raises(StoreUnavailable, match="come back in 7 s"):
        docs.count()


@pytest.mark.parametrize("answer", [b'{"result": {"aliases": 7}, "status": "ok"}', b'{"status": "ok"}', b"[]"])
def test_a_server_of_another_version_is_told_with_the_clients(docs, qdrant, answer) -> None:
    qdrant.fault = lambda method, path: answer
    with pytest.raises(StoreRefused, match=r"no Qdrant, or one of another version than its client \(1\."):
        docs.count()


def test_a_server_that_keeps_no_metadata_is_told_and_not_taken_for_an_unmarked_collection(zoo, docs, qdrant) -> None:
    qdrant.keeps_metadata = False
    for _ in range(2):  # the collection of the first try is there at the second
        with pytest.raises(StoreRefused, match=r"older than 1.16.*newer"):
            docs.upsert(["a"])
    assert qdrant.client.get_aliases().aliases == []
    qdrant.keeps_metadata = True
    assert not docs.drop()


def test_no_warning_comes_of_versions(docs, qdrant, recwarn) -> None:
    docs.upsert(["a"])
    assert "GET /" not in qdrant.asked
    assert [str(one.message) for one in recwarn] == []


def test_what_others_store_of_a_document_meanwhile_is_told(docs, zoo, qdrant) -> None:
    """Between the writing of one version and its last look another process stores a whole other one."""
    other = zoo.collection("docs", url=f"{qdrant.url}/")
    docs.upsert([Document("d", ["old"])])
    met: list[str] = []

    def meet(method: str, path: str) -> None:
        if path.endswith("points/delete") and not met:
            met.append(path)
            other.upsert([Document("d", ["theirs", "shared"])])

    qdrant.fault = meet
    with pytest.raises(CollectionError, match=r"changed what 'd' consists of.*Store it once more"):
        docs.upsert([Document("d", ["mine", "shared"])])
    texts = {record.payload["text"] for record in qdrant.client.scroll("docs")[0]}
    assert texts == {"theirs", "shared"}, "nothing that came meanwhile was removed"
    assert docs.upsert([Document("d", ["mine", "shared"])]).removed == 1
