"""The KServe v2 pass-through: what it lets through, and what it gives nobody."""

import numpy as np
import orjson
import pytest

from zooserve.triton.tensors import Tensor, encode_request, text_tensor, token_tensor
from zooserve_router.backends.wire import RawAnswer
from zooserve_router.backends.zoo import HEADER_LENGTH


def encoded(*tensors, outputs=("embedding",)):
    body, header_length = encode_request(tensors, outputs, request_id="r")
    return {"content": body, "headers": {HEADER_LENGTH: str(header_length)}}


def ids_of(rows=1, length=2, token=5):
    return np.full((rows, length), token, dtype=np.int64)


def rows(ids, mask=None):
    """A body for an encoder."""
    mask = np.ones_like(ids) if mask is None else mask
    tensors = token_tensor("input_ids", ids), token_tensor("attention_mask", mask)
    return encoded(*tensors, outputs=("sentence_embedding",))


def told(**tensor):
    """A body in JSON alone."""
    return {"content": orjson.dumps({"inputs": [tensor]})}


async def test_bodies_pass_unchanged_both_ways(router):
    router.zoo.answer = RawAnswer(
        200, {"content-type": "application/octet-stream", HEADER_LENGTH: "2", "x": "y"}, b"{}\1"
    )
    sent = encoded(text_tensor("text", ["w5"]))
    answer = await router.http.post("/v2/models/embed/infer", **sent)
    assert answer.content == b"{}\1"
    assert answer.headers[HEADER_LENGTH] == "2"
    assert answer.headers["x-zooserve-model"] == "embed"
    assert "x" not in answer.headers
    method, path, headers, body = router.zoo.sent[0]
    assert (method, path, body) == ("POST", "/v2/models/embed/infer", sent["content"])
    assert headers == sent["headers"]


@pytest.mark.parametrize(
    ("name", "triton"),
    [
        ("embed", "embed"),
        ("embed/versions/1", "embed"),
        ("all-MiniLM-L6-v2", "embed"),
        ("embed@1", "embed"),
        ("embed_bulk", "embed_bulk"),
        ("embed_encoder", "embed_encoder"),
        ("toxicity", "classify"),
        ("sentence-transformers/all-MiniLM-L6-v2", "embed"),
        ("sentence-transformers%2Fall-MiniLM-L6-v2/versions/1", "embed"),
    ],
)
async def test_the_catalogues_names_lead_to_their_triton_model(router, name, triton):
    sent = rows(ids_of()) if triton == "embed_encoder" else encoded(text_tensor("text", ["w5"]))
    answer = await router.http.post(f"/v2/models/{name}/infer", **sent)
    assert answer.status_code == 200
    assert router.zoo.sent[0][1] == f"/v2/models/{triton}/infer"


async def test_the_class_header_chooses_the_twin(router):
    sent = encoded(text_tensor("text", ["w5"]))
    sent["headers"]["x-zooserve-class"] = "bulk"
    await router.http.post("/v2/models/embed/infer", **sent)
    assert router.zoo.sent[0][1] == "/v2/models/embed_bulk/infer"


async def test_infer_on_a_chat_model_names_the_streaming_route(router):
    for name in ("chat", "smollm2-135m-instruct"):
        answer = await router.http.post(f"/v2/models/{name}/infer", **encoded(text_tensor("text_input", ["w5"])))
        assert answer.status_code == 400
        assert "/v1/chat/completions" in answer.json()["error"]


@pytest.mark.parametrize(
    "path",
    [
        "/v2/repository/index",
        "/v2/repository/models/embed/load",
        "/v2/repository/models/embed/unload",
        "/v2//repository/index",
        "/v2/models/tensorrt_llm/infer",
        "/v2/models/tensorrt_llm/generate_stream",
        "/v2/models/embed_tokenizer/infer",
        "/v2/models/embed/generate",
        "/v2/models/embed/versions/2/infer",
        "/v2/models/embed/stats",
        "/v2/models/sentence-transformers/all-MiniLM-L6-v2/stats",
        "/v2/models/sentence-transformers/../../repository/infer",
        "/v2/models/a/b/c/versions/1/infer",
        "/v2/models/embed/trace/setting",
        "/v2/trace/setting",
        "/v2/logging",
        "/v2/systemsharedmemory/region/x/register",
        "/v2/cudasharedmemory/status",
        "/v2/models/embed%2F..%2F..%2Frepository%2Findex",
        "/v2/models/..%2Frepository/infer",
        "/v2/models/embed%00/infer",
        "/v2/models/embed%3Fx/infer",
        "/v2/models//infer",
    ],
)
async def test_nothing_else_of_triton_is_reachable(router, path):
    answer = await router.http.post(path, **encoded(text_tensor("text", ["w5"])))
    assert answer.status_code == 404
    assert set(answer.json()) == {"error"}
    assert router.zoo.sent == []


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        ({"content": b"{"}, "not valid JSON"),
        ({"content": b"[]"}, "an array"),
        ({"content": b"{}"}, "`inputs`"),
        ({"content": b'{"inputs":[5]}'}, "`inputs`"),
        ({"content": b'{"inputs":[{"name":"text","parameters":5}]}'}, "`parameters`"),
        ({"content": b'{"inputs":[{}]}', "headers": {HEADER_LENGTH: "99"}}, "Inference-Header"),
        ({"content": b'{"inputs":[{}]}', "headers": {HEADER_LENGTH: "-1"}}, "Inference-Header"),
        ({"content": b'{"inputs":[{}]}', "headers": {HEADER_LENGTH: "9" * 5000}}, "Inference-Header"),
        (told(name="text", datatype="BYTES", shape=[1, 1], data=["w5\0"]), "NUL"),
        (encoded(text_tensor("text", ["w5", "w\0"])), "NUL"),
        (told(name=[[1]], datatype="BYTES", data="x", parameters=5), "a tensor whose name is an array"),
        (rows(ids_of(), ids_of(token=2)), "1 for a token and 0"),
        (rows(ids_of(), ids_of(token=-1)), "1 for a token and 0"),
        (rows(ids_of(), ids_of(length=3, token=1)), "differ in shape"),
        (rows(ids_of(length=257)), "257 tokens"),
        (rows(np.full(2, 5, np.int64)), "[rows, length]"),
        (rows(ids_of(length=0)), "[rows, length]"),
        (encoded(token_tensor("input_ids", ids_of())), "input_ids and attention_mask, each once"),
        (told(name="attention_mask", datatype="INT64", shape=[1, 1], data=[[1]]), "each once"),
        (encoded(*[token_tensor("input_ids", ids_of())] * 2), "each once"),
        (
            encoded(Tensor("input_ids", "INT32", (1, 1), b"\5\0\0\0"), token_tensor("attention_mask", ids_of(token=1))),
            "'INT32'",
        ),
        ({"content": b'{"inputs":[{"name":"a"}]}x', "headers": {HEADER_LENGTH: "25"}}, "1 bytes after"),
        (encoded(Tensor("text", "BYTES", (1, 1), b"\2\0\0\0\xff\xfe")), "UTF-8"),
        (encoded(Tensor("text", "BYTES", (1, 1), b"\x09\0\0\0ab")), "add up"),
        (encoded(Tensor("text", "BYTES", (1, 1), b"\0\0")), "add up"),
        (encoded(Tensor("input_ids", "INT64", (1, 1), (1000).to_bytes(8, "little"))), "0 to 999"),
        (encoded(Tensor("input_ids", "INT64", (1, 1), (2**64 - 1).to_bytes(8, "little"))), "0 to 999"),
        (encoded(Tensor("input_ids", "INT64", (1, 1), b"\0\0")), "multiple of 8"),
        ({"content": b'{"inputs":[{"name":"input_ids","datatype":"INT64","data":[[5],[6,7]]}]}'}, "input_ids"),
        ({"content": b'{"inputs":[{"name":"input_ids","datatype":"INT64","data":["a"]}]}'}, "integers"),
        ({"content": b'{"inputs":[{"name":"input_ids","datatype":"INT64","data":[5000]}]}'}, "0 to 999"),
    ],
)
async def test_what_would_only_fail_inside_a_stage_is_refused_before(router, sent, says):
    answer = await router.http.post("/v2/models/embed_encoder/infer", **sent)
    assert answer.status_code == 400
    assert says in answer.json()["error"]
    assert router.zoo.sent == []


@pytest.mark.parametrize("part", ["inputs", "outputs"])
async def test_shared_memory_is_refused(router, part):
    shared = {"name": "x", "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 4}}
    body = {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1, 1], "data": ["w5"]}]}
    body[part] = [shared]
    answer = await router.http.post("/v2/models/embed/infer", content=orjson.dumps(body))
    assert answer.status_code == 400
    assert "shared memory" in answer.json()["error"]


async def test_compressed_requests_are_refused(router):
    answer = await router.http.post("/v2/models/embed/infer", content=b"x", headers={"content-encoding": "gzip"})
    assert answer.status_code == 400


@pytest.mark.parametrize(
    "reason",
    [
        "Request for unknown model: 'embed' is not found",
        "Request for unknown model: 'embed' has no available versions",
        "Request for unknown model: 'embed' version 1 is not at ready state",
        "in ensemble 'embed', Request for unknown model: 'embed_encoder' has no available versions",
    ],
)
@pytest.mark.parametrize("status", [400, 404])
async def test_a_model_that_triton_does_not_have_is_our_fault_and_a_doubt(router, status, reason):
    router.zoo.answer = RawAnswer(status, {"content-type": "application/json"}, orjson.dumps({"error": reason}))
    answer = await router.http.post("/v2/models/embed/infer", **encoded(text_tensor("text", ["w5"])))
    assert answer.status_code == 503
    assert not router.services.readiness.is_ready("embed")


async def test_a_callers_own_words_in_a_refusal_raise_no_doubt(router):
    reason = "unexpected inference input 'Request for unknown model is not ready has no available versions'"
    router.zoo.answer = RawAnswer(400, {"content-type": "application/json"}, orjson.dumps({"error": reason}))
    answer = await router.http.post("/v2/models/embed/infer", **encoded(text_tensor("text", ["w5"])))
    assert answer.status_code == 400
    assert router.services.readiness.is_ready("embed")


async def test_tritons_own_refusals_pass_and_its_failures_are_translated(router):
    router.zoo.answer = RawAnswer(400, {"content-type": "application/json"}, b'{"error":"unexpected shape"}')
    sent = encoded(text_tensor("text", ["w5"]))
    refused = await router.http.post("/v2/models/embed/infer", **sent)
    assert (refused.status_code, refused.json()) == (400, {"error": "unexpected shape"})
    router.zoo.answer = RawAnswer(503, {}, b'{"error":"Exceeds maximum queue size"}')
    full = await router.http.post("/v2/models/embed/infer", **sent)
    assert full.status_code == 429
    assert "retry-after" in full.headers


async def test_metadata_and_config_come_from_the_triton_model_itself(router):
    router.zoo.answer = RawAnswer(200, {"content-type": "application/json"}, b'{"name":"embed"}')
    assert (await router.http.get("/v2/models/all-MiniLM-L6-v2")).json() == {"name": "embed"}
    assert (await router.http.get("/v2/models/embed/config")).json() == {"name": "embed"}
    assert [sent[1] for sent in router.zoo.sent] == ["/v2/models/embed", "/v2/models/embed/config"]


async def test_readiness_per_model_is_our_own_proof(router):
    assert (await router.http.get("/v2/models/embed/ready")).status_code == 200
    assert (await router.http.get("/v2/models/embed/versions/1/ready")).status_code == 200
    assert (await router.http.get("/v2/health/live")).status_code == 200
    assert (await router.http.get("/v2/health/ready")).status_code == 503
    assert (await router.http.get("/v2")).json()["name"] == "zooserve"


async def test_deeply_nested_data_without_an_element_is_refused(router):
    nested = b'{"inputs":[{"name":"text","datatype":"BYTES","shape":[1,1],"data":' + b"[" * 900 + b"]" * 900 + b"}]}"
    assert (await router.http.post("/v2/models/embed/infer", content=nested)).status_code == 400
