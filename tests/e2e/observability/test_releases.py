"""A canary, a shadow and embedding spaces on a real platform with two router replicas, over the real Triton."""

import importlib.util
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from zooserve_router.releases import is_drawn

pytestmark = pytest.mark.e2e

MODELS = "embed,embed_next,rag_query,language,language_next,rerank,rerank_trees"
HEADER = "x-zooserve-embedding-space"
IDS = [f"req_{number}" for number in range(60)]


def _zoo_with_releases() -> Any:
    spec = importlib.util.spec_from_file_location("zoo_with_releases", Path(__file__).with_name("zoo_with_releases.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


releases = _zoo_with_releases()


@pytest.fixture(scope="module")
def released(platforms_of_module: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A platform with releases."""
    path = releases.write_zoo_with_releases(tmp_path_factory.mktemp("catalogue") / "zoo.yaml")
    platform = platforms_of_module(ZOOSERVE_CATALOGUE=str(path), ZOOSERVE_MODELS=MODELS, ZOOSERVE_ROUTER__REPLICAS="2")
    platform.up()
    return platform


@pytest.fixture
def http(released: Any) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=released.url, timeout=60) as client:
        yield client


def counted(http: httpx.Client, metric: str, **labels: str) -> float:
    lines = http.get("/metrics").text.splitlines()
    wanted = [f'{name}="{value}"' for name, value in labels.items()]
    of_metric = [line for line in lines if line.startswith(f"{metric}{{")]
    return sum(float(line.rpartition(" ")[2]) for line in of_metric if all(label in line for label in wanted))


def eventually(holds: Callable[[], bool], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "did not hold in time"
        time.sleep(0.1)


def test_a_share_of_the_requests_is_the_canarys_on_every_replica(http: httpx.Client) -> None:
    drawn = {one: is_drawn("canary", "language", one, releases.LANGUAGE_SHARE) for one in IDS}
    for _ in range(2):  # a retry with the same id meets the same release
        for request_id in IDS:
            body = {"model": "language", "input": "Guten Morgen, wie geht es Ihnen heute?"}
            answer = http.post("/v1/classify", json=body, headers={"x-request-id": request_id})
            assert answer.status_code == 200, answer.text
            ran = answer.headers["x-zooserve-model"], answer.headers["x-zooserve-version"]
            assert ran == (("language_next", "2") if drawn[request_id] else ("language", "1"))
            assert answer.json()["model"] == "language"
            assert answer.json()["data"][0]["label"] == "de"
    labels = {"model": "language", "outcome": "ok"}
    requests = "zooserve_release_requests_total"
    assert counted(http, requests, **labels, release="language_next", role="canary") == 2 * sum(drawn.values())
    assert counted(http, requests, **labels, release="language", role="serving") == 2 * (60 - sum(drawn.values()))


def test_the_shares_and_what_is_served_are_told_once_for_all_replicas(http: httpx.Client) -> None:
    share = "zooserve_release_share"
    assert counted(http, share, model="language", role="serving") == 1 - releases.LANGUAGE_SHARE
    assert counted(http, share, model="language", role="canary") == releases.LANGUAGE_SHARE
    assert counted(http, share, model="rerank", role="shadow", release="rerank_trees") == releases.SHADOW_SHARE
    for name in MODELS.split(","):
        assert counted(http, "zooserve_model_info", model=name) == 1
        # `up` waits for the required models alone.
        eventually(lambda name=name: counted(http, "zooserve_model_ready", model=name) == 1)
    info = [line for line in http.get("/metrics").text.splitlines() if line.startswith("zooserve_model_info{")]
    assert all(len(line.partition('weights="')[2].partition('"')[0]) == 12 for line in info), info


def test_a_shadow_computes_what_the_serving_model_answered(http: httpx.Client) -> None:
    of_shadow = {"model": "rerank", "release": "rerank_trees", "role": "shadow"}
    requests = "zooserve_release_requests_total"
    body = {"model": "rerank", "query": "Where is Paris?", "documents": ["Paris is in France.", "Ducks swim."]}
    for _ in range(10):
        answer = http.post("/v2/rerank", json=body)
        assert answer.headers["x-zooserve-model"] == "rerank"
        assert answer.json()["results"][0]["index"] == 0
    eventually(lambda: counted(http, requests, **of_shadow) == 10)
    assert counted(http, requests, **of_shadow, outcome="ok") == 10
    assert counted(http, "zooserve_requests_total", model="rerank_trees") == 0


def test_a_caller_meets_one_release_on_every_replica_and_gets_the_same_vectors(http: httpx.Client) -> None:
    met, vectors = set(), []
    for caller in range(8):
        releases_met = set()
        for _ in range(6):
            headers = {"authorization": f"Bearer {caller}"}
            answer = http.post("/v1/embeddings", json={"model": "embed", "input": "a duck"}, headers=headers)
            releases_met.add(answer.headers["x-zooserve-model"])
            vectors.append(answer.json()["data"][0]["embedding"])
        assert len(releases_met) == 1
        met |= releases_met
    assert met == {"embed", "embed_next"}
    assert np.ptp(np.array(vectors), axis=0).max() < 1e-5


def test_the_space_of_a_query_is_that_of_the_passages_and_another_is_refused(http: httpx.Client) -> None:
    passages = http.post("/v1/embeddings", json={"model": "embed", "input": "a duck"})
    space = passages.headers[HEADER]
    assert space == http.get("/v1/models/embed").json()["embedding_space"]
    query = http.post("/v1/rag_query", json={"input": "a duck"}, headers={HEADER: space})
    assert (query.status_code, query.headers[HEADER]) == (200, space)
    one, other = (answer.json()["data"][0]["embedding"] for answer in (passages, query))
    assert np.dot(one, other) > 0.9999
    refused = http.post("/v1/rag_query", json={"input": "a duck"}, headers={HEADER: "0123456789abcdef"})
    assert refused.status_code == 409
    assert refused.json()["error"]["code"] == "embedding_space_mismatch"
    assert counted(http, "zooserve_embedding_space_mismatches_total", model="rag_query") == 1


def test_openais_client_is_told_once_and_does_not_try_again(released: Any, http: httpx.Client) -> None:
    before = counted(http, "zooserve_embedding_space_mismatches_total", model="embed")
    with (
        openai.OpenAI(base_url=f"{released.url}/v1", api_key="x", default_headers={HEADER: "another"}) as client,
        pytest.raises(openai.ConflictError, match="insists on embedding space 'another'"),
    ):
        client.embeddings.create(model="embed", input="a duck")
    assert counted(http, "zooserve_embedding_space_mismatches_total", model="embed") == before + 1
