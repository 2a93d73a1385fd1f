"""/v1/rerank and /v2/rerank over a fake zoo that counts shared words."""

import pytest

DOCUMENTS = ["w9", "w5 w6 w7", "w5", {"text": "w5 w6"}]


async def rank(router, path="/v1/rerank", **fields):
    return await router.http.post(path, json={"query": "w5 w6 w7", "documents": DOCUMENTS, **fields})


async def test_results_are_sorted_and_scored_between_0_and_1(router):
    body = (await rank(router)).json()
    assert [result["index"] for result in body["results"]] == [1, 3, 2, 0]
    assert [result["relevance_score"] for result in body["results"]] == pytest.approx([0.75, 0.5, 0.25, 0.0])


async def test_the_answer_has_what_cohere_jina_and_vllm_clients_read(router):
    body = (await rank(router)).json()
    assert body["id"]
    assert body["object"] == "list"
    assert body["model"] == "rerank"
    assert body["usage"]["prompt_tokens"] == body["usage"]["total_tokens"] == body["meta"]["tokens"]["input_tokens"]
    assert body["meta"]["api_version"] == {"version": "1"}
    assert body["meta"]["billed_units"] == {"search_units": 1}
    assert body["results"][0]["document"] == {"text": "w5 w6 w7"}


async def test_v2_returns_documents_only_when_asked(router):
    assert "document" not in (await rank(router, "/v2/rerank")).json()["results"][0]
    assert "document" in (await rank(router, "/v2/rerank", return_documents=True)).json()["results"][0]
    assert "document" not in (await rank(router, return_documents=False)).json()["results"][0]


@pytest.mark.parametrize(("top_n", "left"), [(0, 4), (1, 1), (3, 3), (99, 4), (None, 4)])
async def test_top_n_keeps_the_best(router, top_n, left):
    assert len((await rank(router, top_n=top_n)).json()["results"]) == left


async def test_equal_scores_keep_the_callers_order(router):
    body = (await rank(router, documents=["w5 w9", "w5 w8", "w5"])).json()
    assert [result["index"] for result in body["results"]] == [0, 1, 2]


async def test_the_query_is_row_0_of_every_chunk(router, texts_of):
    documents = [f"w{4 + place}" for place in range(100)]
    body = (await rank(router, documents=documents)).json()
    chunks = [texts_of(asked.inputs[0]) for asked in router.zoo.asked]
    assert all(chunk[0] == "w5 w6 w7" for chunk in chunks)
    assert [len(chunk) for chunk in chunks] == [32, 32, 32, 8]
    assert {result["index"] for result in body["results"][:3]} == {1, 2, 3}
    assert all(asked.model == "rerank_bulk" for asked in router.zoo.asked)


async def test_documents_are_cut_to_max_tokens_per_doc(router, texts_of):
    await rank(router, documents=["w5 w6 w7 w8", "w9"], max_tokens_per_doc=2)
    assert sorted(texts_of(router.zoo.asked[0].inputs[0])[1:]) == ["w5 w6", "w9"]


async def test_a_document_beyond_the_model_is_left_to_triton_to_cut(router):
    assert (await rank(router, documents=["w5 " * 400])).status_code == 200
