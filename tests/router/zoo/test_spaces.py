"""Every answer with vectors names its embedding space, and a request that insists on another is refused."""

import pytest

HEADER = "x-zooserve-embedding-space"
KSERVE = b'{"inputs": [{"name": "text", "shape": [1, 1], "datatype": "BYTES", "data": ["w5"]}]}'
ROUTES = {
    "/v1/embeddings": ("embed", {"model": "embed", "input": "w5"}),
    "/v1/rag_query": ("rag_query", {"input": "w5"}),
    "/embed_sparse": ("embed_sparse", {"inputs": "w5"}),
    "/v2/models/embed/infer": ("embed", KSERVE),
    "/v2/models/embed_encoder/infer": (
        "embed",
        b'{"inputs": [{"name": "input_ids", "shape": [1, 2], "datatype": "INT64", "data": [2, 3]}, '
        b'{"name": "attention_mask", "shape": [1, 2], "datatype": "INT64", "data": [1, 1]}]}',
    ),
}


async def asked(router, path: str, space: str | bytes | None = None):
    body = ROUTES[path][1]
    content = {"content": body} if isinstance(body, bytes) else {"json": body}
    return await router.http.post(path, **content, headers={} if space is None else {HEADER: space})


def mismatches(router, model: str) -> float:
    return router.counted("zooserve_embedding_space_mismatches_total", model=model, version="1")


@pytest.mark.parametrize("path", ROUTES)
async def test_every_answer_with_vectors_names_its_space(router, path: str):
    answer = await asked(router, path)
    listed = (await router.http.get(f"/v1/models/{ROUTES[path][0]}")).json()
    assert answer.status_code == 200
    assert answer.headers[HEADER] == listed["embedding_space"]
    assert len(answer.headers[HEADER]) == 16
    assert (await asked(router, path, answer.headers[HEADER])).status_code == 200


async def test_a_query_has_the_space_of_the_model_that_embedded_the_passages(router):
    spaces = {
        model["id"]: model.get("embedding_space") for model in (await router.http.get("/v1/models")).json()["data"]
    }
    assert spaces["rag_query"] == spaces["embed"]
    own = [spaces[name] for name in ("embed", "embed_int8", "embed_multilingual", "embed_sparse")]
    assert len(set(own)) == 4
    assert spaces["rerank"] is spaces["classify"] is spaces["chat"] is None


@pytest.mark.parametrize("path", ROUTES)
async def test_who_insists_on_another_space_is_told_both(router, path: str):
    served = (await asked(router, path)).headers[HEADER]
    router.zoo.asked.clear()
    router.zoo.sent.clear()
    refused = await asked(router, path, "0123456789abcdef")
    assert refused.status_code == 409
    assert "'0123456789abcdef'" in refused.text
    assert f"'{served}'" in refused.text
    assert "embed those anew" in refused.text
    assert refused.headers[HEADER] == served
    assert refused.headers["x-should-retry"] == "false"  # OpenAI's clients would try a 409 twice more
    assert not router.zoo.asked
    assert not router.zoo.sent
    assert mismatches(router, ROUTES[path][0]) == 1
    assert router.counted("zooserve_refused_total", reason="embedding_space_mismatch") == 1
    assert router.counted("zooserve_requests_total", model=ROUTES[path][0], outcome="OtherEmbeddingSpace") == 1


async def test_the_refusal_has_openais_form(router):
    error = (await asked(router, "/v1/embeddings", "another")).json()["error"]
    assert (error["code"], error["param"], error["type"]) == (
        "embedding_space_mismatch", HEADER, "invalid_request_error"
    )  # fmt: skip


@pytest.mark.parametrize(
    "space",
    ["", "x" * 10_000, b"\xff\x00\x80", "'; drop table", "0" * 65],
    ids=["empty", "long", "no text", "quotes", "longer than shown"],
)
async def test_no_value_does_harm_and_little_of_it_is_told(router, space: str | bytes):
    refused = await asked(router, "/v1/embeddings", space)
    assert refused.status_code == 409
    assert refused.json()["error"]["code"] == "embedding_space_mismatch"
    assert len(refused.text) < 700
    told = space.decode("latin-1") if isinstance(space, bytes) else space
    assert repr(told[:64]) in refused.json()["error"]["message"]
    assert mismatches(router, "embed") == 1


async def test_what_makes_no_vectors_has_no_space_to_insist_on(router):
    answer = await router.http.post(
        "/v1/rerank", json={"model": "rerank", "query": "w5", "documents": ["w6"]}, headers={HEADER: "another"}
    )
    assert answer.status_code == 200
    assert HEADER not in answer.headers
