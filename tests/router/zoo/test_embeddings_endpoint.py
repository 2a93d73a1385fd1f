"""/v1/embeddings over a fake zoo: shapes, order, chunks, limits."""

import base64
from itertools import pairwise
from typing import Any

import numpy as np

EN = "/v1/embeddings"


def rows(answer: Any) -> list[np.ndarray]:
    return [np.asarray(item["embedding"], dtype=np.float32) for item in answer.json()["data"]]


async def test_a_string_comes_back_as_one_vector_in_openais_shape(router):
    answer = await router.embed("w5 w6")
    body = answer.json()
    assert answer.status_code == 200
    assert body["object"] == "list"
    assert body["model"] == "embed"
    assert body["usage"] == {"prompt_tokens": 4, "total_tokens": 4}
    assert [item["index"] for item in body["data"]] == [0]
    assert body["data"][0]["object"] == "embedding"


async def test_the_answer_says_what_ran(router):
    answer = await router.embed("w5", model="all-MiniLM-L6-v2@1")
    assert answer.headers["x-zooserve-model"] == "embed"
    assert answer.headers["x-zooserve-version"] == "1"
    assert "zoo;dur=" in answer.headers["server-timing"]
    assert answer.headers["x-request-id"].startswith("req_")


async def test_base64_is_the_same_vector_in_little_endian_float32(router):
    plain = rows(await router.embed("w5 w6"))[0]
    encoded = (await router.embed("w5 w6", encoding_format="base64")).json()["data"][0]["embedding"]
    assert np.array_equal(np.frombuffer(base64.b64decode(encoded), "<f4"), plain)


async def test_vectors_keep_the_callers_order_over_many_chunks(router, vector_of):
    texts = [f"w{4 + place} " * (1 + place * 37 % 50) for place in range(150)]
    answer = await router.embed(texts)
    assert [item["index"] for item in answer.json()["data"]] == list(range(150))
    for text, vector in zip(texts, rows(answer), strict=True):
        assert np.allclose(vector, vector_of(text))


async def test_long_lists_go_in_chunks_of_similar_length_a_few_at_a_time(router, texts_of):
    texts = ["w5 " * (1 + place % 100) for place in range(300)]
    await router.embed(texts)
    chunks = [[len(text) for text in texts_of(asked.inputs[0])] for asked in router.zoo.asked]
    assert sum(map(len, chunks)) == 300
    assert max(map(len, chunks)) <= 32
    assert all(max(one) <= min(two) for one, two in pairwise(chunks))
    assert router.zoo.most_busy <= 4


async def test_many_texts_are_bulk_unless_the_caller_says_otherwise(router):
    await router.embed(["w5"] * 16)
    await router.embed(["w5"] * 17)
    body = {"model": "embed", "input": ["w5"] * 17}
    await router.http.post(EN, json=body, headers={"x-zooserve-class": "interactive"})
    assert [asked.model for asked in router.zoo.asked] == ["embed", "embed_bulk", "embed"]


async def test_token_ids_are_framed_padded_to_their_bucket_and_sent_to_the_encoder(router):
    answer = await router.embed([[5, 6], [2, 7, 3], [8] * 20])
    assert answer.json()["usage"]["prompt_tokens"] == 4 + 3 + 22
    assert [(asked.model, asked.inputs[0].shape) for asked in router.zoo.asked] == [
        ("embed_encoder", (2, 16)),
        ("embed_encoder", (1, 32)),
    ]
    assert [list(vector[:5]) for vector in rows(answer)] == [[2, 5, 6, 3, 0], [2, 7, 3, 0, 0], [2, 8, 8, 8, 8]]


async def test_a_single_token_array_is_one_input(router):
    answer = await router.embed([5, 6, 7])
    assert len(answer.json()["data"]) == 1


async def test_the_deadline_and_the_model_go_on_to_triton(router):
    headers = {"x-request-timeout-ms": "1500"}
    await router.http.post(EN, json={"model": "embed", "input": "w5"}, headers=headers)
    asked = router.zoo.asked[0]
    assert asked.tags == {
        "zooserve.model": "embed", "zooserve.model_version": "1", "zooserve.slo_class": "interactive",
        "gen_ai.operation.name": "embeddings", "gen_ai.provider.name": "triton", "gen_ai.request.model": "embed",
    }  # fmt: skip
    assert 1.0 < asked.timeout_s <= 1.5


async def test_a_text_of_exactly_the_limit_is_embedded(router):
    assert (await router.embed("w5 " * 254)).status_code == 200


async def test_a_text_beyond_the_limit_is_refused_with_both_counts(router):
    answer = await router.embed(["w5", "w5 " * 255])
    error = answer.json()["error"]
    assert answer.status_code == 400
    assert error["code"] == "context_length_exceeded"
    assert error["param"] == "input[1]"
    assert "257" in error["message"]
    assert "256" in error["message"]
    assert router.zoo.asked == []


async def test_more_tokens_than_one_request_may_bring_are_refused(router):
    answer = await router.embed(["w5 " * 200] * 1500)
    assert answer.status_code == 400
    assert "303000 tokens" in answer.json()["error"]["message"]
    assert router.zoo.asked == []


async def test_2048_short_texts_are_served(router):
    answer = await router.embed(["w5"] * 2048)
    assert answer.status_code == 200
    assert len(answer.json()["data"]) == 2048


async def test_the_models_own_dimensions_may_be_asked_for(router):
    assert (await router.embed("w5", dimensions=384, user="someone")).status_code == 200


async def test_null_fields_and_duplicate_keys_are_tolerated(router):
    content = b'{"model":"nope","model":"embed","input":"w5","dimensions":null,"user":null}'
    answer = await router.http.post(EN, content=content, headers={"content-type": "application/json; charset=utf-8"})
    assert answer.status_code == 200
