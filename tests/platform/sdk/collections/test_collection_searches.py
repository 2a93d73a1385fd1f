"""What a search finds, by one vector or two, filtered, reranked."""

import pytest
from qdrant_client import models

from zooserve import Chunk, Document
from zooserve.errors import BadInput, DeadlineExceeded, SpaceMismatch

TEXTS = ["ducks swim on ponds", "tax forms are due in may", "geese swim too"]


@pytest.fixture
def filled(docs):
    """Three chunks about this and that."""
    docs.upsert(
        [Chunk(text, id=place, payload={"place": place, "even": place % 2 == 0}) for place, text in enumerate(TEXTS)]
    )
    return docs


@pytest.fixture
def hybrid(zoo, tmp_path):
    """The same with sparse vectors."""
    docs = zoo.collection("hybrid", path=tmp_path / "hybrid", sparse="embed_sparse")
    docs.upsert(TEXTS)
    return docs


def test_the_nearest_come_first_with_all_that_was_stored(filled) -> None:
    hits = filled.search("ducks swim on ponds", 2)
    assert (hits[0].id, hits[0].text, hits[0].payload) == (0, TEXTS[0], {"place": 0, "even": True})
    assert len(hits) == 2
    assert hits[0].score == hits[0].found_score == pytest.approx(1, abs=1e-5)


def test_a_query_is_embedded_as_one_in_the_collections_space(filled, served) -> None:
    filled.search("swim")
    request, body = served.requests[-1], served.bodies("/v1/embeddings")[-1]
    assert body["input_type"] == "query"
    assert request.headers["x-zooserve-embedding-space"] == served.space("embed")
    assert "x-zooserve-class" not in request.headers


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ({"place": 1}, {1}),
        ({"even": True}, {0, 2}),
        ({"place": [1, 2]}, {1, 2}),
        ({"place": [1, 2], "even": True}, {2}),
        ({"place": 9}, set()),
        ({}, {0, 1, 2}),
        (models.Filter(must=[models.FieldCondition(key="place", range=models.Range(gte=1))]), {1, 2}),
    ],
)
def test_a_filter_is_of_payloads(filled, where, found) -> None:
    assert {hit.id for hit in filled.search("swim", filter=where)} == found


@pytest.mark.parametrize("where", ["place", {"place": None}, {"place": 1.5}, {"place": {"gte": 1}}, {1: 2}, 7])
def test_a_filter_that_is_none_is_refused(filled, where) -> None:
    with pytest.raises(BadInput, match="filter"):
        filled.search("swim", filter=where)


def test_reranking_takes_more_and_gives_the_best_with_the_rerankers_scores(filled, served) -> None:
    hits = filled.search("due in may", 1, rerank=3)
    assert [hit.text for hit in hits] == [TEXTS[1]]
    assert hits[0].score == pytest.approx(3 / 7)
    assert hits[0].found_score != hits[0].score
    (body,) = served.bodies("/v2/rerank")
    assert sorted(body["documents"]) == sorted(TEXTS)


def test_a_rerank_below_the_limit_takes_as_many_as_the_limit(filled) -> None:
    assert len(filled.search("swim", 3, rerank=1)) == 3


@pytest.mark.parametrize("arguments", [{"limit": 0}, {"limit": True}, {"limit": 1.0}, {"rerank": 0}, {"rerank": -1}])
def test_numbers_that_make_no_sense_are_refused(filled, arguments) -> None:
    with pytest.raises(BadInput, match=next(iter(arguments))):
        filled.search("swim", **arguments)


@pytest.mark.parametrize("query", ["", None, b"swim", ["swim"], "a\udc80", "a\0"])
def test_a_query_that_is_no_text_is_refused(filled, query) -> None:
    with pytest.raises(BadInput, match="query"):
        filled.search(query)


def test_a_reading_is_searched_without_embedding_again(filled, zoo, served) -> None:
    reading = zoo.rag_query("ducks swim on ponds")
    before = len(served.bodies("/v1/embeddings"))
    assert filled.search("ducks swim on ponds", 1, reading=reading)[0].id == 0
    assert len(served.bodies("/v1/embeddings")) == before


def test_a_reading_of_another_space_is_refused(zoo, tmp_path) -> None:
    other = zoo.collection("other", path=tmp_path, model="embed_other")
    other.upsert(TEXTS)
    with pytest.raises(SpaceMismatch, match=r"b{16}.*a{16}.*reading"):
        other.search("ducks", reading=zoo.rag_query("ducks"))


def test_a_budget_is_for_the_whole_search(filled) -> None:
    with pytest.raises(DeadlineExceeded):
        filled.search("swim", rerank=3, timeout_s=1e-9)
    with pytest.raises(BadInput, match="timeout_s"):
        filled.search("swim", timeout_s=-1)


def test_opening_and_asking_share_one_budget_the_clients_where_none_is_given(zoo, served, tmp_path) -> None:
    told = []
    for options in ({"timeout_s": 30}, {}):
        served.requests.clear()
        docs = zoo.collection("docs", path=tmp_path, sparse="embed_sparse")
        docs.search("ducks", **options)
        told.append([int(request.headers["x-request-timeout-ms"]) for request in served.requests])
    assert len(told[0]) == len(told[1]) == 4
    assert max(told[0]) <= 30_000 < max(told[1]) <= 60_000
    for left in told:
        assert left == sorted(left, reverse=True)


def test_a_hybrid_collection_is_found_by_words_as_well(hybrid, served) -> None:
    hits = hybrid.search("geese", 3)
    assert hits[0].text == "geese swim too"
    assert hits[0].score > hits[1].score
    assert served.bodies("/embed_sparse")[-1]["inputs"] == ["geese"]
    assert [request.headers["x-zooserve-embedding-space"] for request in served.requests[-2:]] == ["a" * 16, "d" * 16]


def test_a_hybrid_collection_stores_and_embeds_both_once(hybrid, served) -> None:
    assert hybrid.upsert(TEXTS).unchanged == 3
    assert len(served.bodies("/embed_sparse")) == 1
    assert hybrid.describe().physical == f"hybrid--{'a' * 16}-{'d' * 16}"


def test_a_hybrid_search_filters_both_and_reranks(hybrid) -> None:
    hybrid.upsert([Document("book", ["geese in a book"])])
    assert [hit.text for hit in hybrid.search("geese", filter={"document": "book"})] == ["geese in a book"]
    assert hybrid.search("tax forms", 1, rerank=4)[0].text == TEXTS[1]


def test_without_a_word_in_common_only_the_dense_vectors_rank(hybrid) -> None:
    assert len(hybrid.search("zebra", 3)) == 3


def test_a_collection_without_sparse_vectors_is_not_searched_by_any(filled, zoo) -> None:
    wants = zoo.collection("docs", path=filled._address.path, sparse="embed_sparse")
    with pytest.raises(SpaceMismatch, match=r"docs has no sparse vectors.*embed_sparse"):
        wants.search("swim")


def test_sparse_vectors_of_another_version_are_refused(hybrid, zoo, served) -> None:
    served.sparse_version = "2"
    again = zoo.collection("hybrid", path=hybrid._address.path)
    with pytest.raises(SpaceMismatch, match=r"embed_sparse@1 \(space d{16}\); embed_sparse@2 .* e{16}"):
        again.search("swim")
    with pytest.raises(SpaceMismatch, match=r"d{16}.*e{16}"):
        hybrid.search("swim")
