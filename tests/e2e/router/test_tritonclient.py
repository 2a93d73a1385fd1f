"""The unmodified tritonclient.http against the router, with the catalogue's names."""

from collections.abc import Iterator

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

pytestmark = pytest.mark.e2e


@pytest.fixture
def client(platform) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(platform.url.removeprefix("http://")) as made:
        yield made


def texts(*values: str | bytes) -> triton.InferInput:
    made = triton.InferInput("text", [len(values), 1], "BYTES")
    made.set_data_from_numpy(np.array([[value] for value in values], dtype=object))
    return made


def tokens(name: str, row: list[int]) -> triton.InferInput:
    made = triton.InferInput(name, [1, 16], "INT64")
    made.set_data_from_numpy(np.array([row + [0] * (16 - len(row))], dtype=np.int64))
    return made


def test_server_and_models_say_that_they_are_there(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("embed")
    assert client.is_model_ready("embed", "1")
    assert not client.is_model_ready("nobody")
    assert client.get_server_metadata()["name"] == "zooserve"
    assert client.get_model_metadata("embed")["inputs"][0]["name"] == "text"
    assert client.get_model_config("all-MiniLM-L6-v2")["max_batch_size"] == 64


@pytest.mark.parametrize("name", ["embed", "all-MiniLM-L6-v2", "embed_bulk"])
def test_infer_by_any_name_gives_the_ensembles_outputs(client, name):
    result = client.infer(name, [texts("hello", "hello world")], request_id="abc", timeout=5_000_000)
    assert result.as_numpy("embedding").shape == (2, 384)
    assert result.as_numpy("tokens").ravel().tolist() == [3, 4]
    assert result.get_response()["id"] == "abc"


def test_json_tensors_work_as_binary_ones_do(client):
    given = triton.InferInput("text", [1, 1], "BYTES")
    given.set_data_from_numpy(np.array([["hello"]], dtype=object), binary_data=False)
    wanted = triton.InferRequestedOutput("embedding", binary_data=False)
    plain = client.infer("embed", [given], outputs=[wanted]).as_numpy("embedding")
    binary = client.infer("embed", [texts("hello")]).as_numpy("embedding")
    assert np.allclose(plain, binary, atol=1e-6)


def test_the_encoder_takes_token_ids(client):
    given = [tokens("input_ids", [101, 7592, 102]), tokens("attention_mask", [1, 1, 1])]
    vector = client.infer("embed_encoder", given, outputs=[triton.InferRequestedOutput("sentence_embedding")])
    text = client.infer("embed", [texts("hello")])
    assert vector.as_numpy("sentence_embedding")[0] @ text.as_numpy("embedding")[0] > 0.99999


def test_compressed_answers_reach_clients_that_ask_for_them(client):
    assert client.infer("embed", [texts("hi")], response_compression_algorithm="gzip").as_numpy("tokens") is not None


@pytest.mark.parametrize(
    ("name", "given", "options", "status", "says"),
    [
        ("chat", lambda: texts("hi"), {}, "400", "/v1/chat/completions"),
        ("tensorrt_llm", lambda: texts("hi"), {}, "404", "does not exist"),
        ("embed_tokenizer", lambda: texts("hi"), {}, "404", "does not exist"),
        ("embed", lambda: texts("hi"), {"model_version": "2"}, "404", "version"),
        ("embed", lambda: texts(b"\xff"), {}, "400", "UTF-8"),
        ("embed", lambda: texts(*["hi"] * 65), {}, "400", "64"),
        ("embed", lambda: tokens("text", [1]), {}, "400", "text"),
        ("embed_encoder", lambda: tokens("input_ids", [99_999]), {}, "400", "30521"),
    ],
)
def test_what_cannot_be_is_a_4xx(client, name, given, options, status, says):
    with pytest.raises(InferenceServerException, match=says) as refused:
        client.infer(name, [given()], **options)
    assert refused.value.status() == status


def test_repository_control_statistics_and_shared_memory_are_not_there(client):
    for call in (
        lambda: client.load_model("embed"),
        lambda: client.unload_model("embed"),
        client.get_model_repository_index,
        client.get_inference_statistics,
        client.get_trace_settings,
        client.get_log_settings,
        client.get_system_shared_memory_status,
        lambda: client.register_system_shared_memory("region", "/region", 64),
    ):
        with pytest.raises(InferenceServerException) as refused:
            call()
        assert refused.value.status() in ("404", "405")
    assert client.is_model_ready("embed")
