"""Bad input to the zoo's routes: each a 4xx that says what to do, and nothing reaches the backend."""

import json
from typing import Any

import pytest

EMBED = "/v1/embeddings"


def embed(**fields: Any) -> bytes:
    return json.dumps({"model": "embed", "input": "w5", **fields}).encode()


def rerank(**fields: Any) -> bytes:
    return json.dumps({"query": "w5", "documents": ["w5", "w6"], **fields}).encode()


CASES = [
    (EMBED, b"", 400, "empty"),
    (EMBED, b"{", 400, "not valid JSON"),
    (EMBED, b"[]", 400, "an array"),
    (EMBED, b"null", 400, "null"),
    (EMBED, b'{"model":"embed","input":NaN}', 400, "not valid JSON"),
    (EMBED, b"\xff\xfe", 400, "not valid JSON"),
    (EMBED, b"[" * 5000, 400, "not valid JSON"),
    (EMBED, b'{"model":"embed","input":"half \\ud800 a pair"}', 400, "surrogate"),
    (EMBED, b'{"model":"embed","input":"nul \\u0000 inside"}', 400, "NUL"),
    (EMBED, b'{"model":"embed"}', 400, "`input` is missing"),
    (EMBED, b'{"input":"w5"}', 400, "`model` is missing"),
    (EMBED, embed(model=""), 400, "`model` is empty"),
    (EMBED, embed(model=7), 400, "`model` is an integer"),
    (EMBED, embed(model="embd"), 404, "Did you mean embed"),
    (EMBED, embed(model="embed@2"), 404, "embed@1"),
    (EMBED, embed(model="embed@"), 404, "embed@1"),
    (EMBED, embed(model="x" * 10_000), 404, "does not exist"),
    (EMBED, embed(model="chat"), 400, "/v1/chat/completions"),
    (EMBED, embed(model="rerank"), 400, "/v1/rerank"),
    (EMBED, embed(input=""), 400, "`input` is an empty string"),
    (EMBED, embed(input=[]), 400, "`input` is an empty array"),
    (EMBED, embed(input=["w5", ""]), 400, "`input[1]` is an empty string"),
    (EMBED, embed(input=[[]]), 400, "`input[0]` is an empty token array"),
    (EMBED, embed(input=5), 400, "`input` is an integer"),
    (EMBED, embed(input={"text": "w5"}), 400, "`input` is an object"),
    (EMBED, embed(input=True), 400, "`input` is a boolean"),
    (EMBED, embed(input=["w5", 5]), 400, "`input[1]` is an integer"),
    (EMBED, embed(input=["w5", [5]]), 400, "`input[1]` is an array"),
    (EMBED, embed(input=["w5", None]), 400, "`input[1]` is null"),
    (EMBED, embed(input=[[5], "w5"]), 400, "do not mix"),
    (EMBED, embed(input=[5, "w5"]), 400, "contains a string"),
    (EMBED, embed(input=[5, 1.5]), 400, "contains a number"),
    (EMBED, embed(input=[5, True]), 400, "contains a boolean"),
    (EMBED, embed(input=[True, 5]), 400, "`input[0]` is a boolean"),
    (EMBED, embed(input=[5, 1000]), 400, "token 1000"),
    (EMBED, embed(input=[5, -1]), 400, "token -1"),
    (EMBED, embed(input=[5, 2**70]), 400, "contains a number"),
    (EMBED, embed(input=[[5] * 300]), 400, "300 tokens"),
    (EMBED, embed(input=["w5"] * 2049), 400, "2049 items"),
    (EMBED, embed(input=[[5]] * 2049), 400, "2049 items"),
    (EMBED, embed(encoding_format="int8"), 400, "float, base64"),
    (EMBED, embed(encoding_format=1), 400, "`encoding_format` is an integer"),
    (EMBED, embed(dimensions=128), 400, "384"),
    (EMBED, embed(dimensions=0), 400, "at least 1"),
    (EMBED, embed(dimensions="384"), 400, "`dimensions` is a string"),
    (EMBED, embed(dimensions=True), 400, "`dimensions` is a boolean"),
    (EMBED, embed(user=5), 400, "`user` is an integer"),
    (EMBED, embed(dimension=384), 400, "Unrecognized request argument supplied: dimension. Did you mean `dimensions`?"),
    (EMBED, embed(input=[[5] * 255]), 400, "257 tokens"),
    (EMBED, embed(input=[5] * 1_000_000), 400, "1000000 tokens"),
    (EMBED, embed(input=[[5] * 200] * 2000), 400, "400000 tokens together"),
    (EMBED, embed(model="x" * 2_000_000), 404, "does not exist"),
    (EMBED, embed(**{"x" * 1_000_000: 1}), 400, "Unrecognized request argument supplied: xxx"),
    (EMBED, embed(banana=1), 400, "Unrecognized request argument supplied: banana. Known here"),
    ("/v1/rerank", rerank(query=""), 400, "`query` is an empty string"),
    ("/v1/rerank", rerank(query=None), 400, "`query` is missing"),
    ("/v1/rerank", rerank(query="w5 " * 300), 400, "`query` has 302 tokens"),
    ("/v1/rerank", rerank(documents=[]), 400, "`documents` is an empty array"),
    ("/v1/rerank", rerank(documents="w5"), 400, "`documents` is a string"),
    ("/v1/rerank", rerank(documents=["w5", 7]), 400, "`documents[1]` is an integer"),
    ("/v1/rerank", rerank(documents=[{"title": "w5"}]), 400, "`text`"),
    ("/v1/rerank", rerank(documents=[{"text": 7}]), 400, "`documents[0].text` is an integer"),
    ("/v1/rerank", rerank(documents=["w5"] * 1001), 400, "1001 items"),
    ("/v1/rerank", rerank(top_n=-1), 400, "`top_n` is -1"),
    ("/v1/rerank", rerank(top_n=1.5), 400, "`top_n` is a number"),
    ("/v1/rerank", rerank(max_tokens_per_doc=0), 400, "at least 1"),
    ("/v1/rerank", rerank(return_documents="yes"), 400, "`return_documents` is a string"),
    ("/v2/rerank", rerank(priority=-1), 400, "between 0 and 999"),
    ("/v2/rerank", rerank(rank_fields=["text"]), 400, "Unrecognized request argument supplied: rank_fields"),
    ("/v2/rerank", rerank(model="rerunk"), 404, "Did you mean rerank"),
    ("/v1/classify", b'{"input":[]}', 400, "empty array"),
    ("/v1/classify", b'{"input":[5]}', 400, "`input[0]` is an integer"),
    ("/v1/classify", b'{"input":"w5","model":"embed"}', 400, "/v1/embeddings"),
    ("/v1/classify", json.dumps({"input": ["w5"] * 257}).encode(), 400, "257 items"),
    ("/v1/classify", json.dumps({"input": "w5, " * 101}).encode(), 400, "101 tokens"),
    ("/v1/rag_query", b'{"input":""}', 400, "empty string"),
    ("/v1/rag_query", json.dumps({"input": "w5 " * 300}).encode(), 400, "302 tokens"),
    ("/v1/rag_query", json.dumps({"input": ["w5"] * 33}).encode(), 400, "33 items"),
]


@pytest.mark.parametrize(("path", "body", "status", "says"), CASES, ids=lambda value: str(value)[:60])
async def test_bad_input_is_named_and_stays_out_of_the_backend(router, path, body, status, says):
    answer = await router.http.post(path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status
    told = answer.json()
    message = told["message"] if path.endswith("rerank") else told["error"]["message"]
    assert says in message
    assert router.zoo.asked == []
    assert router.taken_tokens == 0


async def test_an_openai_error_has_all_four_fields(router):
    answer = await router.embed("w5", dimensions=128)
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] == "dimensions"
    assert error["code"] == "unsupported_parameter"
    assert error["message"]


async def test_a_body_that_is_not_json_by_its_own_word_is_refused(router):
    answer = await router.http.post(EMBED, content=embed(), headers={"content-type": "text/plain"})
    assert answer.status_code == 400
    assert "application/json" in answer.json()["error"]["message"]


async def test_a_body_of_10_mb_is_refused_in_every_dialect(router):
    body = b" " * 10_000_000
    for path, told in ((EMBED, "error"), ("/v2/rerank", "message"), ("/v2/models/embed/infer", "error")):
        answer = await router.http.post(path, content=body)
        assert answer.status_code == 413
        assert told in answer.json()


async def test_unknown_paths_and_wrong_methods_answer_in_the_paths_dialect(router):
    unknown = await router.http.get("/v1/embedings")
    assert unknown.status_code == 404
    assert unknown.json()["error"]["code"] == "route_not_found"
    wrong = await router.http.get(EMBED)
    assert wrong.status_code == 405
    assert wrong.json()["error"]["code"] == "method_not_allowed"
    assert (await router.http.get("/v2/nope")).json() == {
        "error": "No route '/v2/nope'. GET /v1/models lists what can be called."
    }
    assert "message" in (await router.http.get("/v2/rerank")).json()
