"""/embed_sparse over a fake zoo, in the shape of text-embeddings-inference."""

from typing import Any

from qdrant_client import QdrantClient, models

ROUTE = "/embed_sparse"


def weights(row: list[dict[str, Any]]) -> dict[int, float]:
    return {entry["index"]: entry["value"] for entry in row}


async def test_every_text_gets_the_words_that_have_a_weight_by_ascending_index(router):
    answer = await router.http.post(ROUTE, json={"inputs": ["w9 w5", "w7"]})
    assert answer.status_code == 200
    assert answer.headers["x-zooserve-model"] == "embed_sparse"
    first, second = answer.json()
    assert [entry["index"] for entry in first] == [5, 9]
    assert weights(second) == {7: 1.0}


async def test_one_text_is_answered_as_a_list_of_one(router):
    answer = await router.http.post(ROUTE, json={"inputs": "w5", "model": "splade-tiny"})
    assert [weights(row) for row in answer.json()] == [{5: 1.0}]


async def test_many_texts_keep_their_order(router):
    texts = [f"w{5 + place} " * (1 + place * 37 % 50) for place in range(80)]
    answer = await router.http.post(ROUTE, json={"inputs": texts})
    assert [next(iter(weights(row))) for row in answer.json()] == [5 + place for place in range(80)]


async def test_a_longer_text_is_refused_unless_it_may_be_truncated(router, texts_of):
    text = "w5 " * 300
    refused = await router.http.post(ROUTE, json={"inputs": [text]})
    assert refused.status_code == 400
    assert "302 tokens" in refused.json()["error"]
    assert not router.zoo.asked
    assert (await router.http.post(ROUTE, json={"inputs": [text], "truncate": True})).status_code == 200
    assert len(texts_of(router.zoo.asked[0].inputs[0])[0].split()) == 254


async def test_errors_have_the_shape_that_its_clients_parse(router):
    for body in ({}, {"inputs": []}, {"inputs": [1, 2]}, {"inputs": "w5", "truncation_direction": "Left"}):
        answer = await router.http.post(ROUTE, json=body)
        assert answer.status_code == 400, body
        assert answer.json().keys() == {"error", "error_type"}
        assert answer.json()["error_type"] == "Validation"


async def test_a_model_of_another_task_is_refused(router):
    answer = await router.http.post(ROUTE, json={"inputs": "w5", "model": "embed"})
    assert answer.status_code == 400
    assert "/v1/embeddings" in answer.json()["error"]


async def test_its_vectors_can_be_searched_in_qdrant(router):
    def vector(row: list[dict[str, Any]]) -> models.SparseVector:
        return models.SparseVector(indices=[one["index"] for one in row], values=[one["value"] for one in row])

    rows = (await router.http.post(ROUTE, json={"inputs": ["w5 w6", "w7 w8", "w8"]})).json()
    store = QdrantClient(":memory:")
    store.create_collection("texts", vectors_config={}, sparse_vectors_config={"words": models.SparseVectorParams()})
    points = [models.PointStruct(id=place, vector={"words": vector(row)}) for place, row in enumerate(rows[:2])]
    store.upsert("texts", points)
    found = store.query_points("texts", query=vector(rows[2]), using="words").points
    assert [point.id for point in found] == [1]
    store.close()
