"""/v1/classify, /v1/rag_query, /v1/models and health over a fake zoo."""

import base64

import numpy as np
import pytest

from zooserve.errors import BackendFailed, BackendUnavailable


async def test_classify_says_which_labels_are_likely(router):
    answer = await router.http.post("/v1/classify", json={"input": ["w5", "w6"]})
    body = answer.json()
    assert body["id"].startswith("classify-")
    assert [item["index"] for item in body["data"]] == [0, 1]
    item = body["data"][0]
    assert item["label"] == "toxic"
    assert item["labels"] == ["toxic", "obscene"]
    assert item["num_classes"] == 6
    assert item["probs"] == pytest.approx([0.9, 0.1, 0.6, 0.2, 0.3, 0.4])
    assert item["scores"]["threat"] == pytest.approx(0.2)
    assert body["usage"] == {"prompt_tokens": 6, "total_tokens": 6}


async def test_rag_query_gives_a_vector_and_a_verdict(router, vector_of):
    inputs = ["w5", "please ignore it"]
    body = (await router.http.post("/v1/rag_query", json={"input": inputs})).json()
    assert np.allclose(body["data"][1]["embedding"], vector_of("please ignore it"))
    assert [item["prompt_injection"]["flagged"] for item in body["data"]] == [False, True]
    assert body["data"][1]["prompt_injection"]["probability"] == 1.0


async def test_rag_query_tells_the_language(router):
    body = (await router.http.post("/v1/rag_query", json={"input": ["w5", "bitte w5 w6"]})).json()
    assert [item["language"] for item in body["data"]] == [
        {"code": "en", "probability": 0.75},
        {"code": "de", "probability": 0.75},
    ]


async def test_rag_query_speaks_base64_too(router, vector_of):
    body = (await router.http.post("/v1/rag_query", json={"input": "w5", "encoding_format": "base64"})).json()
    vector = np.frombuffer(base64.b64decode(body["data"][0]["embedding"]), "<f4")
    assert np.array_equal(vector, vector_of("w5"))


async def test_rag_query_asks_for_every_output(router):
    """Triton 2.51 calls it a deadlock otherwise."""
    await router.http.post("/v1/rag_query", json={"input": "w5"})
    wanted = ("embedding", "injection_probability", "language", "language_probability", "tokens")
    assert router.zoo.asked[0].outputs == wanted


async def test_models_are_listed_with_what_a_caller_wants_to_know(router):
    listed = {model["id"]: model for model in (await router.http.get("/v1/models")).json()["data"]}
    assert {"embed", "rerank", "classify", "rag_query", "language", "nsfw", "chat"} <= set(listed)
    assert (listed["nsfw"]["modality"], listed["nsfw"]["labels"]) == ("image", ["sfw", "nsfw"])
    assert listed["embed"]["object"] == "model"
    assert listed["embed"]["task"] == "embed"
    assert listed["embed"]["version"] == "1"
    assert listed["embed"]["ready"] is True
    assert listed["embed"]["limits"]["max_tokens"] == 256
    assert listed["chat"]["ready"] is False
    assert listed["chat"]["features"] == ["completions", "penalties", "seed"]
    assert "features" not in listed["embed"]


@pytest.mark.parametrize("name", ["embed", "embed@1", "all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"])
async def test_a_model_is_found_by_any_of_its_names(router, name):
    assert (await router.http.get(f"/v1/models/{name}")).json()["id"] == "embed"


async def test_an_unknown_model_is_404_with_the_nearest_names(router):
    answer = await router.http.get("/v1/models/embde")
    assert answer.status_code == 404
    assert "embed" in answer.json()["error"]["message"]


async def test_live_needs_no_model(router):
    assert (await router.http.get("/health/live")).status_code == 200


async def test_ready_lists_each_model_with_its_reason(router):
    answer = await router.http.get("/health/ready")
    models = {model["model"]: model for model in answer.json()["models"]}
    assert answer.status_code == 503  # chat is required and has no leaf here
    assert models["embed"]["ready"] is True
    assert models["chat"]["ready"] is False
    assert "zooserve fetch" in models["chat"]["reason"]


async def test_an_unready_model_is_503_for_itself_alone(router):
    rerank = router.services.catalogue.resolve("rerank")
    router.zoo.fault = BackendFailed("stub gone")
    router.services.readiness.doubt(rerank, BackendUnavailable("stub gone"))
    refused = await router.http.post("/v1/rerank", json={"query": "w5", "documents": ["w5"]})
    assert refused.status_code == 503
    assert "stub gone" in refused.json()["message"]
    router.zoo.fault = None
    assert (await router.embed("w5")).status_code == 200


async def test_what_may_be_asked_stands_at_0_before_it_is(router):
    text = (await router.http.get("/metrics")).text
    for slo_class in ("interactive", "bulk"):
        run = f'class="{slo_class}",model="embed"'
        assert f'zooserve_requests_total{{{run},outcome="ok",version="1"}} 0.0' in text
        assert f'zooserve_requests_total{{{run},outcome="BackendUnavailable",version="1"}} 0.0' in text


async def test_metrics_count_by_model_version_class_and_outcome(router):
    await router.embed("w5 w6")
    await router.embed("w5", model="made-up-name")
    text = (await router.http.get("/metrics")).text
    ok = 'zooserve_requests_total{class="interactive",model="embed",outcome="ok",version="1"} 1.0'
    unknown = 'zooserve_requests_total{class="interactive",model="unknown",outcome="ModelNotFound",version=""} 1.0'
    assert ok in text
    assert unknown in text
    assert 'zooserve_tokens_total{class="interactive",direction="input",model="embed",version="1"} 4.0' in text
    assert 'zooserve_refused_total{reason="model_not_found"} 1.0' in text
    assert "made-up-name" not in text
