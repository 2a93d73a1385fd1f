"""What the wire can do to the whole router: tricks in the path, bodies of every kind, callers who leave."""

import asyncio
import json
import socket

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.e2e

ROUTES = [
    "/v1/embeddings",
    "/v1/rerank",
    "/v2/rerank",
    "/v1/classify",
    "/v1/rag_query",
    "/v2/models/embed/infer",
    "/v2/models/embed_encoder/infer",
    "/v2/models/rerank/infer",
]


def raw(platform, request_line: str, body: bytes = b"{}") -> bytes:
    """The answer to exactly this request line."""
    head = f"{request_line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", platform.port), timeout=30) as connection:
        connection.sendall(head.encode("latin-1") + body)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return answer


@pytest.mark.parametrize(
    "path",
    [
        "/v2/repository/index",
        "/v2//repository/index",
        "//v2/repository/index",
        "/v2/models/../repository/index",
        "/v2/models/embed/../../repository/index",
        "/v2/models/embed%2F..%2F..%2Frepository%2Findex",
        "/v2/models/%2e%2e/repository/index",
        "/v2/models/embed/infer/../../../repository/index",
        "/v2/models/tensorrt_llm/infer",
        "/v2/models/tensorrt_llm%3F/infer",
        "/v2/models/tensorrt_llm/generate_stream",
        "/v2;/repository/index",
    ],
)
def test_no_path_reaches_what_is_not_offered(platform, path):
    answer = raw(platform, f"POST {path}")
    assert int(answer.split()[1]) in (400, 404)
    assert b"embed_tokenizer" not in answer
    assert b"READY" not in answer


def test_10_mb_are_refused_whether_declared_or_not(platform):
    def pieces():
        for _ in range(160):
            yield b" " * 65536

    for content in (b" " * 10_000_000, pieces()):
        answer = httpx.post(f"{platform.url}/v1/embeddings", content=content, timeout=60)
        assert answer.status_code == 413
        assert answer.json()["error"]["code"] == "body_too_large"


def test_steering_headers_of_the_server_underneath_have_no_effect(platform):
    headers = {"x-request-timeout-seconds": "0.000001", "x-request-disconnect-disabled": "?1"}
    answer = httpx.post(f"{platform.url}/v1/embeddings", json={"model": "embed", "input": "hi"}, headers=headers)
    assert answer.status_code == 200


def test_errors_have_their_dialect_over_the_wire(platform):
    assert "error" in httpx.get(f"{platform.url}/v1/nothing").json()
    assert httpx.get(f"{platform.url}/v1/embeddings").status_code == 405
    assert set(httpx.post(f"{platform.url}/v2/rerank", json={}).json()) == {"message"}
    assert set(httpx.get(f"{platform.url}/v2/nothing").json()) == {"error"}


def test_health_and_metrics_answer(platform):
    assert httpx.get(f"{platform.url}/health/live").status_code == 200
    ready = httpx.get(f"{platform.url}/health/ready").json()
    assert {model["model"]: model["ready"] for model in ready["models"]} == dict.fromkeys(
        ["embed", "rerank", "classify", "rag_query", "language", "chat"], True
    )
    text = httpx.get(f"{platform.url}/metrics").text
    assert 'zooserve_requests_total{class="interactive",model="embed"' in text


async def test_callers_who_hang_up_leave_nothing_in_flight(platform):
    async def hang_up(after_s: float) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", platform.port)
        body = json.dumps({"model": "embed", "input": ["some words to embed " * 20] * 64}).encode()
        head = (
            f"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        )
        writer.write(head.encode() + b"\r\n\r\n" + body)
        await writer.drain()
        await asyncio.sleep(after_s)
        writer.close()

    await asyncio.gather(*(hang_up(place * 0.01) for place in range(20)))
    async with httpx.AsyncClient(base_url=platform.url, timeout=60) as http:
        async with asyncio.timeout(60):
            # the question itself is one of those in flight
            while "zooserve_requests_in_flight 1.0" not in (await http.get("/metrics")).text:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert 'outcome="cancelled"' in (await http.get("/metrics")).text
        answer = await http.post("/v1/embeddings", json={"model": "embed", "input": "hi"})
        assert answer.status_code == 200


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=12), inner, max_size=5),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    [
        "model",
        "input",
        "query",
        "documents",
        "top_n",
        "dimensions",
        "encoding_format",
        "inputs",
        "outputs",
        "user",
        "id",
    ]
)
TENSOR = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["text", "input_ids", "attention_mask", "x"]),
        "datatype": st.sampled_from(["BYTES", "INT64", "FP32", "?"]),
        "shape": st.lists(st.integers(-2, 40), max_size=3),
        "data": JSON,
    }
)
VALUE = JSON | st.sampled_from(["embed", "rerank", "classify"]) | st.lists(TENSOR, max_size=2)
BODY = st.dictionaries(FIELDS, VALUE, max_size=5).map(lambda fields: json.dumps(fields).encode()) | st.binary(
    max_size=60
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(route=st.sampled_from(ROUTES), body=BODY)
def test_no_body_whatever_is_a_5xx(platform, route, body):
    answer = httpx.post(
        f"{platform.url}{route}", content=body, headers={"content-type": "application/json"}, timeout=60
    )
    assert answer.status_code < 500, answer.text
    assert answer.json()
