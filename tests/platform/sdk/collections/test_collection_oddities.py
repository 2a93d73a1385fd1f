"""Ids and filters as odd callers give them."""

import uuid
from typing import Any

import pytest

from zooserve import Chunk, Document
from zooserve.errors import BadInput
from zooserve.sdk.chunks import passages, point_id
from zooserve.sdk.points import filter_of


def test_documents_of_one_name_are_one_document() -> None:
    with pytest.raises(BadInput, match="twice"):
        list(passages([Document(7, ["one"]), Document("7", ["two"])]))
    assert len(list(passages([Chunk("one", 7), Chunk("two", "7")]))) == 2


def test_an_id_too_long_to_be_written_down_is_refused() -> None:
    for value in (10**5000, -(10**5000)):
        with pytest.raises(BadInput, match="no unsigned 64-bit integer"):
            point_id(value)


@pytest.mark.parametrize("given", [{"year": [2025, "2026"]}, {7: ["a"]}, {"year": [1.5]}])
def test_a_filter_that_qdrant_has_not_is_refused(given: Any) -> None:
    with pytest.raises(BadInput, match="filter"):
        filter_of(given)


MINE = uuid.UUID("550e8400-e29b-41d4-a716-446655440000")
SPELLINGS: list[Any] = [
    MINE, str(MINE), str(MINE).upper(), MINE.hex, MINE.hex.upper(), MINE.urn, f"{{{MINE}}}", f"URN:UUID:{MINE}",
    "550e8400-E29B-41d4-a716-446655440000",
]  # fmt: skip


@pytest.mark.parametrize("first", SPELLINGS, ids=str)
def test_a_uuid_is_one_document_and_one_chunk_however_it_is_written(docs, served, first) -> None:
    docs.upsert([Document(first, ["old", "shared"])])
    for again in SPELLINGS:
        assert docs.upsert([Document(again, ["shared", "new"])]).embedded in (0, 1)
        assert docs.count() == 2
    assert served.embedded == ["old", "shared", "new"], "what is there is not embedded again"
    with pytest.raises(BadInput, match="twice"):
        docs.upsert([Document(first, ["a"]), Document(MINE, ["b"])])
    assert docs.delete(first) == 2


def test_a_document_comes_back_under_the_id_that_it_was_given(docs) -> None:
    digest = "d41d8cd98f00b204e9800998ecf8427e"
    docs.upsert([Document(digest, ["of a digest"]), Document(7, ["of a number"]), Document("a book", ["of a name"])])
    assert {hit.document for hit in docs.search("of", 10)} == {digest, "7", "a book"}


@pytest.mark.parametrize(
    "text",
    [f"{MINE.hex[:16]}_{MINE.hex[16:31]}", f" {MINE.hex[1:]}", f"+{MINE.hex[1:]}", f"0x{MINE.hex[2:]}", f"{{{MINE}"],
)
def test_what_only_resembles_a_uuid_is_a_text(text: str) -> None:
    assert uuid.UUID(str(point_id(text))).version == 5


WRONG_IDS: list[Any] = [{"id": 1}, [{"id": 1}], Chunk("a", id=1), Document(1, "a"), None, [None], 1.5, True, [[1]],
                        b"1", [b"1"], "", ..., -1, 2**64]  # fmt: skip


@pytest.mark.parametrize("ids", WRONG_IDS, ids=repr)
def test_an_id_that_is_none_is_refused_before_anything_is_removed(docs, served, ids) -> None:
    with pytest.raises(BadInput, match="id"):
        docs.delete(ids)
    assert served.requests == [], "not even opened"


def test_numbers_of_numpy_are_numbers(docs) -> None:
    numpy = pytest.importorskip("numpy")
    ids = numpy.arange(3)
    docs.upsert([{"id": one, "text": f"text {one}"} for one in ids])
    assert [hit.id for hit in docs.search("text 1", numpy.int64(1), rerank=numpy.int32(2))] == [1]
    assert docs.delete(ids[:2]) == 2
    assert docs.delete(ids[2]) == 1


@pytest.mark.parametrize(
    "given",
    ["lang=en", ["lang"], 7, {"lang": None}, {"lang": {"en"} | {1}}, {"price": 1.5}, {None: "a"}, {"a": {"b": 1}}],
)
def test_a_filter_of_another_type_is_refused_before_anything_is_sent(docs, served, given: Any) -> None:
    with pytest.raises(BadInput, match="filter"):
        docs.search("a", filter=given)
    assert served.requests == []
