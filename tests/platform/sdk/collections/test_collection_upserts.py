"""What is stored, what is embedded for it, and what is refused before anything is."""

import itertools
import uuid
from types import SimpleNamespace
from typing import Any, cast

import pytest

from zooserve import Chunk, Document
from zooserve.errors import BackendFailed, BadInput, InputTooLong
from zooserve.sdk import Upserted
from zooserve.sdk.chunks import passages
from zooserve.sdk.upserting import batches


def stored(docs) -> dict[str, dict]:
    """Every point's payload by its text."""
    store = docs._stores._open[docs._address]
    records, _ = store._client.scroll(docs.describe().physical, limit=10_000)
    return {record.payload["text"]: record.payload | {"point": record.id} for record in records}


def test_what_is_there_already_is_not_embedded_again(docs, served) -> None:
    texts = [f"text {number}" for number in range(40)]
    assert docs.upsert(texts) == Upserted(embedded=40)
    asked = len(served.bodies("/v1/embeddings"))
    assert docs.upsert(texts) == Upserted(unchanged=40)
    assert len(served.bodies("/v1/embeddings")) == asked
    assert docs.upsert([*texts[:39], "another"]) == Upserted(embedded=1, unchanged=39)
    assert served.embedded == [*texts, "another"]


def test_another_process_finds_what_was_stored(docs, zoo, served, tmp_path) -> None:
    docs.upsert([{"id": "a", "text": "one"}])
    docs.close()
    again = zoo.collection("docs", path=tmp_path / "qdrant")
    assert again.upsert([{"id": "a", "text": "one"}]) == Upserted(unchanged=1)
    assert served.embedded == ["one"]


def test_a_changed_chunk_replaces_the_old_one(docs, served) -> None:
    docs.upsert([Chunk("the old text", id="a"), Chunk("kept", id="b")])
    assert docs.upsert([Chunk("the new text", id="a"), Chunk("kept", id="b")]) == Upserted(embedded=1, unchanged=1)
    assert set(stored(docs)) == {"the new text", "kept"}
    assert served.embedded == ["the old text", "kept", "the new text"]


def test_another_payload_is_stored_without_embedding(docs, served) -> None:
    docs.upsert([Chunk("text", id="a", payload={"page": 1, "gone": True})])
    assert docs.upsert([Chunk("text", id="a", payload={"page": 2})]) == Upserted(updated=1)
    assert served.embedded == ["text"]
    payload = stored(docs)["text"]
    assert payload["page"] == 2
    assert "gone" not in payload
    assert docs.search("text")[0].payload == {"page": 2}


def test_a_documents_new_version_drops_the_chunks_it_has_no_more(docs, served) -> None:
    docs.upsert([Document("book", ["one", "two", "three"], {"lang": "en"}), Document("other", ["one", "four"])])
    assert docs.upsert(Document("book", ["three", "two and a half"])) == Upserted(1, 0, 1, 2)
    assert docs.count() == 4
    chunks = {hit.text: (hit.document, hit.chunk) for hit in docs.search("anything", 10)}
    assert chunks["three"] == ("book", 0)
    assert chunks["two and a half"] == ("book", 1)
    assert chunks["four"] == ("other", 1)
    assert served.embedded.count("three") == 1


def test_a_paragraph_put_before_the_others_is_all_that_is_embedded(docs, served) -> None:
    docs.upsert(Document("book", ["b", "c", "b"]))
    docs.upsert(Document("book", ["a", "b", "c", "b"]))
    assert served.embedded == ["b", "c", "b", "a"]
    assert docs.count() == 4


def test_a_document_without_chunks_is_emptied(docs) -> None:
    docs.upsert(Document("book", ["one", "two"]))
    assert docs.upsert(Document("book", [])) == Upserted(removed=2)
    assert docs.count() == 0


def test_sync_removes_everything_that_was_not_given(docs, served) -> None:
    docs.upsert([Chunk("by itself", id=7), Document("book", ["one", "two"]), Document("old", ["gone"])])
    assert docs.sync([Document("book", ["one"]), "new"]) == Upserted(embedded=1, unchanged=1, removed=3)
    assert set(stored(docs)) == {"one", "new"}


def test_a_sync_that_fails_removes_nothing(docs, served) -> None:
    docs.upsert(["kept"])
    with pytest.raises(InputTooLong):
        docs.sync(["w " * 60])
    assert set(stored(docs)) == {"kept"}


def test_ids_of_the_callers_are_kept_and_texts_become_uuids(docs) -> None:
    mine = uuid.uuid4()
    docs.upsert([Chunk("number", id=2**64 - 1), Chunk("uuid", id=mine), Chunk("name", id="a name/é")])
    points = stored(docs)
    assert points["number"]["point"] == 2**64 - 1
    assert points["uuid"]["point"] == str(mine)
    assert uuid.UUID(points["name"]["point"]).version == 5
    hits = {hit.text: hit.id for hit in docs.search("name", 10)}
    assert hits == {"number": 2**64 - 1, "uuid": str(mine), "name": "a name/é"}


def test_deleting_takes_chunks_and_documents_by_their_ids(docs) -> None:
    docs.upsert([Chunk("seven", id=7), Chunk("named", id="n"), Document("book", ["one", "two"]), "kept"])
    assert docs.delete([7, "n", "book", "nobody"]) == 4
    assert docs.delete("book") == 0
    assert set(stored(docs)) == {"kept"}
    assert docs.delete([]) == 0
    with pytest.raises(BadInput, match="An id is b'\\\\x07'"):
        docs.delete(b"\x07")
    assert docs.delete(str(number) for number in range(2500)) == 0
    assert docs.count() == 1


@pytest.mark.parametrize(
    "items",
    [
        [{"id": "twin", "text": "a"}, {"id": "twin", "text": "b"}],
        [{"id": "twin", "text": "a"}, {"id": "twin", "text": "a"}],
        [Document("twin", ["a"]), Document("twin", ["b"])],
        [Document("twin", ["a"]), Chunk("b", id="twin")],
        [Chunk("a", id=uuid.UUID(int=5)), Chunk("b", id=str(uuid.UUID(int=5)).upper())],
        [Chunk("a", id=5), Chunk("b", id=5)],
    ],
)
def test_an_id_that_comes_twice_is_refused_by_name_before_anything_is_stored(docs, served, items) -> None:
    with pytest.raises(BadInput, match=r"(?i)(twin|5).*twice") as caught:
        docs.upsert(items)
    assert caught.value.code == "duplicate_id"
    assert served.embedded == []
    assert docs.count() == 0


def test_an_id_that_comes_twice_in_a_stream_says_what_was_stored_before_it(in_memory) -> None:
    items = ({"id": number, "text": f"text {number}"} for number in itertools.chain(range(3000), [7]))
    with pytest.raises(BadInput, match=r"The id 7 comes twice.*2816 chunks were in the collection"):
        in_memory.upsert(items)
    assert in_memory.count() == 2816


def test_equal_texts_without_ids_are_one_point_unless_their_payloads_differ(docs) -> None:
    assert docs.upsert(["same", "same", Chunk("same")]) == Upserted(embedded=1)
    with pytest.raises(BadInput, match="two payloads"):
        docs.upsert([Chunk("same", payload={"page": 1}), Chunk("same", payload={"page": 2})])


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"id": "big", "text": "x" * 50_000_000}, r"'big' has 50,000,000 bytes.*zooserve.split"),
        ({"id": "big", "text": "é" * 25_000_000}, r"'big' has 25,000,000 characters.*zooserve.split"),
        ({"id": "raw", "text": b"caf\xe9" * 10}, r"'raw'.*bytes.*text.decode\(.utf-8., errors=.replace.\)"),
        (Document("big", "é" * 600_000), r"chunk 0 of the document 'big' has 1,200,000 bytes"),
        ({"id": "half", "text": "a\udc80b"}, r"'half'.*surrogate"),
        ({"id": "half", "text": "ok", "title": "\ud800"}, r"'half'.*surrogate"),
        ({"id": "nul", "text": "a\0b"}, r"'nul'.*NUL"),
        ({"id": "none", "text": ""}, r"'none'.*empty"),
        ({"id": "none", "text": None}, r"'none'.*None"),
        ({"id": "raw", "text": b"bytes"}, r"'raw'.*bytes"),
        (Document("raw", cast("Any", b"bytes")), r"'raw'.*bytes"),
        (Document("raw", [b"bytes"]), r"chunk 0 of the document 'raw'.*bytes"),
        ({"id": "p", "text": "ok", "when": object()}, r"'p'.*JSON"),
        ({"id": "p", "text": "ok", "n": float("nan")}, r"'p'.*JSON"),
        ({"id": "p", "text": "ok", "sha256": "x"}, r"'p'.*'sha256'"),
        ({"id": "p", "text": "ok", "much": "x" * 1_100_000}, r"'p'.*bytes as JSON"),
        (Chunk("ok", id="p", payload=cast("Any", [1])), r"'p'.*no mapping"),
        (Chunk("ok", id="p", payload={1: 2}), r"'p'.*no mapping"),
        ({"id": -1, "text": "ok"}, "-1"),
        ({"id": 2**64, "text": "ok"}, str(2**64)),
        ({"id": True, "text": "ok"}, "True"),
        ({"id": 1.5, "text": "ok"}, "1.5"),
        ({"id": "", "text": "ok"}, "empty"),
        ({"id": "\udcff", "text": "ok"}, "surrogate"),
        ({"chunks": ["ok"]}, "no `id`"),
        (Document("d", [Chunk("ok", id=1)]), "has an id, 1"),
        ({"words": "ok"}, "neither `text` nor `chunks`"),
        (7, "int"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_is_refused_by_name_before_anything_is_sent(docs, served, item, said) -> None:
    with pytest.raises(BadInput, match=said):
        docs.upsert(["fine", item])
    assert served.embedded == []


@pytest.mark.parametrize("items", [b"bytes", 7, None])
def test_items_that_are_none_are_refused(docs, items) -> None:
    with pytest.raises(BadInput, match="items"):
        docs.upsert(items)


def test_a_chunk_longer_than_the_model_reads_is_named(docs) -> None:
    items = [{"id": number, "text": f"short text {number}"} for number in range(300)]
    items.insert(200, {"id": "the long one", "text": "w " * 60})
    with pytest.raises(InputTooLong, match=r"'the long one' is longer.*60 tokens.*Nothing was stored"):
        docs.upsert(items)
    assert docs.count() == 0


@pytest.mark.parametrize("long_one", [0, 100, 255])
def test_the_chunk_at_fault_is_found_by_halves(docs, served, long_one) -> None:
    """The texts before it are of more letters, so that it is not the first that is suspected."""
    texts = [f"text number {number} of {'so' * 100} few words" for number in range(256)]
    texts[long_one] = "w " * 60
    with pytest.raises(InputTooLong, match=r"^'w w .* is longer"):
        docs.upsert(texts)
    assert len(served.bodies("/v1/embeddings")) <= 1 + 8 * 2 + 1
    assert docs.count() == 0


def test_a_chunk_that_only_the_sparse_model_refuses_is_named_too(zoo, served, tmp_path) -> None:
    served.max_sparse_words = 5
    docs = zoo.collection("docs", path=tmp_path, sparse="embed_sparse")
    with pytest.raises(InputTooLong, match=r"'long' is longer than the model reads: `inputs\[0\]` has 6 tokens"):
        docs.upsert([{"id": "short", "text": "fits"}, {"id": "long", "text": "w w w w w w"}])


def test_a_batch_has_one_budget_for_both_models(zoo, served, tmp_path, monkeypatch) -> None:
    ticks = itertools.count()
    monkeypatch.setattr("zooserve.sdk.budget.time", SimpleNamespace(monotonic=lambda: next(ticks)))
    docs = zoo.collection("docs", path=tmp_path, sparse="embed_sparse")
    docs.upsert(["a"], timeout_s=6000)
    dense, sparse = [request.headers["x-request-timeout-ms"] for request in served.requests if request.method == "POST"]
    assert 6_000_000 > int(dense) > int(sparse) > 0


def test_a_failure_in_the_middle_says_what_is_stored_and_doing_it_again_goes_on_there(docs, served) -> None:
    items = [{"id": number, "text": f"text {number}"} for number in range(2500)]
    served.fails_after = 6  # of 256 texts each
    with pytest.raises(
        BackendFailed, match=r"failed.*1536 chunks were in the collection \(1536 of them embedded now\)"
    ):
        docs.upsert(items)
    assert docs.count() == 1536
    served.fails_after = None
    assert docs.upsert(items) == Upserted(embedded=2500 - 1536, unchanged=1536)


def test_an_endless_iterable_is_taken_a_batch_at_a_time(in_memory) -> None:
    taken, ahead = 0, []

    def texts():
        nonlocal taken
        for number in range(20_000):
            taken += 1
            yield f"text {number} of many"

    done = in_memory.upsert(texts(), progress=lambda stored: ahead.append(taken - stored))
    assert done == Upserted(embedded=20_000)
    assert len(ahead) == 79
    assert max(ahead) <= 1


def test_large_texts_make_smaller_batches(docs) -> None:
    stored_at: list[int] = []
    docs.upsert((Document(number, "x" * 900_000) for number in range(5)), progress=stored_at.append)
    assert stored_at == [1, 2, 3, 4, 5]


def test_documents_without_chunks_do_not_gather_without_end() -> None:
    given = passages(Document(number, []) for number in itertools.count())
    assert [len(batch.ends) for batch in itertools.islice(batches(given), 3)] == [256, 256, 256]


@pytest.mark.parametrize("kind", [lambda text: Document("d", text), lambda text: {"id": "d", "chunks": text}])
def test_one_document_is_checked_whole_before_anything_is_stored(docs, served, kind) -> None:
    with pytest.raises(BadInput, match=r"chunk 600 of the document 'd'.*empty"):
        docs.upsert(kind([*(f"text {number}" for number in range(600)), ""]))
    assert served.embedded == []


def test_one_item_is_a_list_of_one_and_nothing_is_nothing(docs, served) -> None:
    assert docs.upsert("one text") == Upserted(embedded=1)
    assert docs.upsert([]) == Upserted()
    assert served.embedded == ["one text"]


def test_passages_are_embedded_as_bulk_work_in_the_collections_space(docs, served) -> None:
    docs.upsert(["a"])
    (request,) = [request for request in served.requests if request.url.path == "/v1/embeddings"]
    assert request.headers["x-zooserve-class"] == "bulk"
    assert request.headers["x-zooserve-embedding-space"] == served.space("embed")
