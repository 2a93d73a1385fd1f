"""The unmodified cohere SDK, and the shapes of Jina's and vLLM's clients, against rerank."""

from collections.abc import Iterator

import cohere
import httpx
import pytest

pytestmark = pytest.mark.e2e

QUERY = "What is the capital of France?"
DOCUMENTS = ["Berlin is the capital of Germany.", "Paris is the capital of France.", "Apples grow on trees."]


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    """Given to cohere's clients, since they never close their own."""
    with httpx.Client(timeout=60) as made:
        yield made


def test_coheres_v2_client_ranks(platform, http):
    client = cohere.ClientV2(api_key="none", base_url=platform.url, httpx_client=http)
    answer = client.rerank(model="rerank", query=QUERY, documents=DOCUMENTS, top_n=2, max_tokens_per_doc=200)
    assert [result.index for result in answer.results] == [1, 0]
    assert 1 >= answer.results[0].relevance_score > answer.results[1].relevance_score >= 0
    assert answer.id
    assert answer.meta.billed_units.search_units == 1
    assert answer.meta.tokens.input_tokens > 0


def test_coheres_v1_client_ranks_and_gets_documents(platform, http):
    client = cohere.Client(api_key="none", base_url=platform.url, httpx_client=http)
    answer = client.rerank(model="rerank", query=QUERY, documents=DOCUMENTS, return_documents=True)
    assert answer.results[0].document.text == DOCUMENTS[1]


def test_coheres_client_raises_its_own_errors(platform, http):
    client = cohere.ClientV2(api_key="none", base_url=platform.url, httpx_client=http)
    with pytest.raises(cohere.NotFoundError, match="Did you mean rerank"):
        client.rerank(model="rerunk", query=QUERY, documents=DOCUMENTS)
    with pytest.raises(cohere.BadRequestError, match="empty array"):
        client.rerank(model="rerank", query=QUERY, documents=[])


def test_jinas_and_vllms_fields_are_there(platform):
    body = {"model": "rerank", "query": QUERY, "documents": [{"text": text} for text in DOCUMENTS]}
    answer = httpx.post(f"{platform.url}/v1/rerank", json=body, timeout=60).json()
    assert answer["object"] == "list"
    assert answer["usage"]["total_tokens"] > 0
    assert answer["results"][0] == {
        "index": 1,
        "relevance_score": pytest.approx(0.83, abs=0.05),
        "document": {"text": DOCUMENTS[1]},
    }


def test_scores_do_not_depend_on_chunks_or_class(platform):
    filler = [f"Filler number {place} about nothing." * (1 + place % 5) for place in range(70)]
    few = httpx.post(f"{platform.url}/v2/rerank", json={"query": QUERY, "documents": DOCUMENTS}, timeout=60).json()
    many = httpx.post(
        f"{platform.url}/v2/rerank", json={"query": QUERY, "documents": [*DOCUMENTS, *filler]}, timeout=60
    ).json()
    scores = {result["index"]: result["relevance_score"] for result in many["results"]}
    for result in few["results"]:
        assert scores[result["index"]] == pytest.approx(result["relevance_score"], abs=1e-4)
