"""The unmodified openai SDK against /v1/embeddings."""

import asyncio
from collections.abc import Iterator

import numpy as np
import openai
import pytest

pytestmark = pytest.mark.e2e

SENTENCES = [
    "A man is eating pasta.",
    "Someone is having spaghetti for dinner.",
    "The interest rate was raised by a quarter point.",
]


@pytest.fixture
def client(platform) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{platform.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def embedded(client: openai.OpenAI, given, **options) -> np.ndarray:
    answer = client.embeddings.create(model="embed", input=given, **options)
    return np.array([item.embedding for item in answer.data], dtype=np.float32)


def test_vectors_are_normalised_and_near_for_near_meanings(client):
    one, two, other = embedded(client, SENTENCES)
    assert np.linalg.norm(one) == pytest.approx(1, abs=1e-5)
    assert one @ two > 0.6 > 0.3 > one @ other


def test_the_sdks_own_base64_and_plain_numbers_are_the_same_vectors(client):
    assert np.array_equal(embedded(client, SENTENCES), embedded(client, SENTENCES, encoding_format="float"))


def test_order_and_values_hold_over_a_bulk_list_of_mixed_lengths(client):
    texts = [f"{SENTENCES[place % 3]} " * (1 + place % 7) + f"number {place}" for place in range(100)]
    many = embedded(client, texts)
    for place in (0, 17, 50, 99):
        assert many[place] @ embedded(client, texts[place])[0] > 0.99999


def test_token_arrays_equal_the_text_they_came_from(client, platform):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(platform.root / "model_repository/zoo/embed_tokenizer/1/tokenizer.json"))
    tokenizer.no_padding()
    framed = [tokenizer.encode(text).ids for text in SENTENCES]
    bare = [tokenizer.encode(text, add_special_tokens=False).ids for text in SENTENCES]
    texts = embedded(client, SENTENCES)
    for rows in (framed, bare):
        assert np.einsum("ij,ij->i", embedded(client, rows), texts).min() > 0.99999
    assert embedded(client, framed[0])[0] @ texts[0] > 0.99999


def test_a_long_text_is_the_mean_of_its_windows_by_opt_in_and_leaves_short_ones_alone(client):
    long = "A request waits in a queue, and the queue is where most of its time goes. " * 40
    raw = client.embeddings.with_raw_response.create(
        model="embed", input=[SENTENCES[0], long], extra_body={"long_text": "mean"}, encoding_format="float"
    )
    assert raw.headers["x-zooserve-long-text"] == "mean; texts=1; chunks=3"
    short, mean = (np.array(item.embedding, dtype=np.float32) for item in raw.parse().data)
    np.testing.assert_allclose(short, embedded(client, SENTENCES[:1])[0], atol=1e-6)
    assert np.linalg.norm(mean) == pytest.approx(1, abs=1e-5)
    assert mean @ embedded(client, [long[:74]])[0] > 0.5
    with pytest.raises(openai.BadRequestError, match="long_text"):
        embedded(client, [long])


def test_usage_counts_what_the_encoder_read(client):
    answer = client.embeddings.create(model="embed", input=["hello world", "hello"])
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == 4 + 3


def test_the_answers_headers_say_what_ran(client):
    raw = client.embeddings.with_raw_response.create(
        model="all-MiniLM-L6-v2", input="hi", extra_headers={"x-request-id": "my-id"}
    )
    assert raw.headers["x-zooserve-model"] == "embed"
    assert raw.headers["x-zooserve-version"] == "1"
    assert raw.headers.get_list("x-request-id") == ["my-id"]
    assert "zoo;dur=" in raw.headers["server-timing"]


def test_an_unknown_model_is_the_sdks_not_found(client):
    with pytest.raises(openai.NotFoundError, match="Did you mean embed"):
        client.embeddings.create(model="embd", input="hi")


@pytest.mark.parametrize(
    ("given", "options", "code"),
    [
        ("word " * 300, {}, "context_length_exceeded"),
        ("hi", {"dimensions": 128}, "unsupported_parameter"),
        ([[1, 2, 999_999]], {}, "invalid_value"),
        ([], {}, "invalid_value"),
        (["hi"] * 2049, {}, "too_many_items"),
        ("nul \0", {}, "invalid_value"),
    ],
)
def test_bad_input_is_the_sdks_bad_request(client, given, options, code):
    with pytest.raises(openai.BadRequestError) as refused:
        client.embeddings.create(model="embed", input=given, **options)
    assert refused.value.code == code


def test_the_sdk_lists_models(client):
    listed = {model.id: model for model in client.models.list()}
    assert {"embed", "rerank", "classify", "rag_query", "chat"} <= set(listed)
    assert client.models.retrieve("embed").id == "embed"


async def test_64_callers_at_once_each_get_their_own_vector(platform):
    async with openai.AsyncOpenAI(base_url=f"{platform.url}/v1", api_key="none", max_retries=0) as client:
        texts = [f"caller number {place}" for place in range(64)]
        answers = await asyncio.gather(*(client.embeddings.create(model="embed", input=text) for text in texts))
        again = await client.embeddings.create(model="embed", input=texts)
    for answer, expected in zip(answers, again.data, strict=True):
        assert np.dot(answer.data[0].embedding, expected.embedding) > 0.99999


def test_a_deadline_too_short_for_anything_is_a_504(client):
    with pytest.raises(openai.InternalServerError) as late:
        client.embeddings.create(model="embed", input="hi", extra_headers={"x-request-timeout-ms": "0.01"})
    assert late.value.status_code == 504
