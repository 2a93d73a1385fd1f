"""Answers that are no success, as errors: whoever gives them, in whichever dialect."""

import json
from typing import Any

import httpx
import pytest

from zooserve import errors
from zooserve.sdk.answers import Answer, classified, embeddings, model_cards, reranked, sparse_embeddings
from zooserve.sdk.connection_faults import fault_of_connection
from zooserve.sdk.faults import fault_of_answer
from zooserve_router.dialects import SHAPES, STATUS, error_headers

URL = "http://zoo:8000/v1/embeddings"
OURS = {"x-request-id": "req_1"}
SERVING = {"x-zooserve-model": "embed", "x-zooserve-version": "1", "x-zooserve-embedding-space": "s", **OURS}


def _one_vector(answer: Answer) -> Any:
    return embeddings(answer, 1)


def made(kind: type[errors.ServingError]) -> errors.ServingError:
    stage = errors.FailedStage("embed_encoder", "1", "error")
    if kind is errors.Overloaded:
        return errors.Overloaded("what happened", retry_after_s=2)
    if kind is errors.OtherEmbeddingSpace:
        return kind("what happened", param="input")
    return kind("what happened", param="input", failed=stage)


@pytest.mark.parametrize("dialect", ["openai", "cohere", "kserve", "tei"])
@pytest.mark.parametrize("kind", STATUS)
def test_an_error_of_the_router_comes_out_as_it_went_in(dialect: Any, kind: type[errors.ServingError]) -> None:
    told = made(kind)
    headers = {**OURS, **error_headers(told)}
    error = fault_of_answer(STATUS[kind], headers, json.dumps(SHAPES[dialect](told)).encode(), URL).error
    assert isinstance(error, errors.ServingError)
    assert type(error) is kind
    assert (error.message, error.status, error.request_id) == ("what happened", STATUS[kind], "req_1")
    assert (error.failed and error.failed.label) == (told.failed and told.failed.label)
    if dialect == "openai":
        assert error.param == told.param
        assert error.failed == told.failed


def test_an_overload_says_when_to_come_back() -> None:
    fault = fault_of_answer(429, {**OURS, "retry-after-ms": "250"}, b'{"message": "full"}', URL)
    assert isinstance(fault.error, errors.Overloaded)
    assert (fault.error.retry_after_s, fault.after_s, fault.again) == (0.25, 0.25, True)


@pytest.mark.parametrize(
    ("status", "kind", "again"),
    [(502, errors.BackendFailed, True), (503, errors.BackendUnavailable, True), (504, errors.DeadlineExceeded, False)],
)
def test_a_page_of_a_proxy_is_quoted(status: int, kind: type[errors.ServingError], again: bool) -> None:
    page = b"<html>\n<h1>Bad Gateway</h1></html>"
    fault = fault_of_answer(status, {"content-type": "text/html; charset=utf-8"}, page, URL)
    assert type(fault.error) is kind
    assert fault.again is again
    assert f"{URL} answered {status} with text/html" in str(fault.error)
    assert "<h1>Bad Gateway" in str(fault.error)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_says_where_to_give_one(status: int) -> None:
    fault = fault_of_answer(status, {}, b'{"error": {"message": "Incorrect API key.", "code": "invalid_api_key"}}', URL)
    assert isinstance(fault.error, errors.KeyRefused)
    assert not fault.again
    assert "Incorrect API key." in str(fault.error)
    assert "ZOOSERVE_API_KEY" in str(fault.error)
    assert fault.error.status == status


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (404, {"content-type": "text/html"}, b"<html>not here</html>"),
        (405, {}, b""),
        (204, {}, b""),
        (301, {"location": "https://zoo/v1/embeddings"}, b""),
        (307, {"location": "https://zoo/v1/embeddings"}, b"moved"),
        (418, {}, b"short and stout"),
    ],
)
def test_another_server_is_recognised(status: int, headers: dict[str, str], body: bytes) -> None:
    fault = fault_of_answer(status, headers, body, URL)
    assert isinstance(fault.error, errors.UnreadableAnswer)
    assert str(status) in str(fault.error)
    assert headers.get("location", "") in str(fault.error)
    assert not fault.again


@pytest.mark.parametrize(
    "body", [b"\xff\xfe", b"[]", b"null", b"3", b'{"error": []}', b'{"error": {"message": 5}}', b"{"]
)
def test_a_body_that_says_nothing_readable_is_no_obstacle(body: bytes) -> None:
    error = fault_of_answer(400, OURS, body, URL).error
    assert isinstance(error, errors.BadInput)
    assert "answered 400" in str(error)


@pytest.mark.parametrize("exc", [httpx.ConnectError("refused"), httpx.ConnectTimeout("")])
def test_nobody_there_says_what_to_do(exc: httpx.HTTPError) -> None:
    fault = fault_of_connection(exc, "http://zoo:8000")
    assert isinstance(fault.error, errors.Unreachable)
    assert fault.again
    assert all(word in str(fault.error) for word in ("http://zoo:8000", "zooserve up", "base_url"))


def test_a_certificate_that_is_not_known_does_not_become_so() -> None:
    fault = fault_of_connection(httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED]"), "https://zoo")
    assert isinstance(fault.error, errors.Unreachable)
    assert "SSL_CERT_FILE" in str(fault.error)
    assert not fault.again


@pytest.mark.parametrize("exc", [httpx.RemoteProtocolError("gone"), httpx.ReadError(""), httpx.WriteError("reset")])
def test_a_lost_connection_is_tried_again(exc: httpx.HTTPError) -> None:
    fault = fault_of_connection(exc, "http://zoo:8000")
    assert isinstance(fault.error, errors.Unreachable)
    assert fault.again


@pytest.mark.parametrize(
    ("read", "body"),
    [
        (_one_vector, b"<html>"),
        (_one_vector, b"[]"),
        (_one_vector, b"{}"),
        (_one_vector, b"[" * 200_000),
        (_one_vector, b'{"data": [], "usage": {"prompt_tokens": 1}}'),
        (_one_vector, b'{"data": [{"index": 0, "embedding": ""}], "usage": {"prompt_tokens": 1}}'),
        (_one_vector, b'{"data": [{"index": 0, "embedding": "AAA="}], "usage": {"prompt_tokens": 1}}'),
        (_one_vector, b'{"data": [{"index": 0, "embedding": [1.0]}], "usage": {"prompt_tokens": 1}}'),
        (_one_vector, b'{"data": [{"index": 4, "embedding": "AAAAAA=="}], "usage": {"prompt_tokens": 1}}'),
        (lambda answer: sparse_embeddings(answer, 2), b"[[]]"),
        (lambda answer: sparse_embeddings(answer, 1), b'[[{"index": -1, "value": 1}]]'),
        (lambda answer: sparse_embeddings(answer, 1), b'[[{"index": 1, "value": "x"}]]'),
        (lambda answer: reranked(answer, ["a"], 0), b'{"results": [{"index": 1, "relevance_score": 1}]}'),
        (lambda answer: reranked(answer, ["a"], 0), b'{"results": []}'),
        (lambda answer: classified(answer, 1), b'{"data": [{"index": 0}]}'),
        (lambda answer: model_cards(answer), b'{"data": [{"id": "embed"}]}'),
    ],
)
def test_an_answer_of_another_kind_is_not_taken(read: Any, body: bytes) -> None:
    with pytest.raises(errors.UnreadableAnswer, match="does not speak zooserve's API") as caught:
        read(Answer(URL, SERVING, body))
    assert caught.value.request_id == "req_1"


def test_an_answer_without_its_headers_is_not_taken() -> None:
    body = b'{"data": [{"index": 0, "embedding": "AAAAAA=="}], "usage": {"prompt_tokens": 1}}'
    assert embeddings(Answer(URL, SERVING, body), 1).vectors == [[0.0]]
    with pytest.raises(errors.UnreadableAnswer, match="x-zooserve-embedding-space"):
        embeddings(Answer(URL, {"x-zooserve-model": "embed", "x-zooserve-version": "1"}, body), 1)
