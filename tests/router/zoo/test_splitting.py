"""A share of the requests goes to a canary: who answers, what the answer says of it, and how it is counted."""

import pytest

from zooserve.catalogue import Canary, Catalogue, Model, Releases
from zooserve.errors import BackendFailed, BackendUnavailable, BadInput
from zooserve_router.releases import is_drawn

IDS = [f"req_{number}" for number in range(40)]
KSERVE = b'{"inputs": [{"name": "text", "shape": [1, 1], "datatype": "BYTES", "data": ["w5"]}]}'
WHOLLY = {"rerank": None, "rag_query": "embed", "embed_sparse": "embed_sparse"}
"""Models of which the canary answers everything, with their spaces."""
COUNTED = "zooserve_release_requests_total"


def released(model: Model, canary: Canary) -> Model:
    return model.model_copy(update={"releases": Releases(canary=canary)})


def next_of(model: Model, triton_model: str) -> Model:
    update = {"name": f"{model.name}_next", "aliases": (), "version": 2, "triton": {"interactive": triton_model}}
    return model.model_copy(update={**update, "required": False, "encoder": {"interactive": f"{triton_model}_encoder"}})


@pytest.fixture
def catalogue(catalogue: Catalogue) -> Catalogue:
    """`language` and `embed` with a canary for half of the requests or callers, some others with one for all."""
    models = {model.name: model for model in catalogue}
    models["language_next"] = next_of(models["language"], "language")
    models["embed_next"] = next_of(models["embed"], "embed_next").model_copy(update={"space": "embed"})
    models["language"] = released(models["language"], Canary(model="language_next", share=0.5))
    models["embed"] = released(models["embed"], Canary(model="embed_next", share=0.5, by="caller"))
    for name, space in WHOLLY.items():
        models[f"{name}_next"] = next_of(models[name], name).model_copy(update={"space": space})
        models[name] = released(models[name], Canary(model=f"{name}_next", share=1.0))
    return Catalogue(tuple(models.values()))


def drawn(request_id: str) -> bool:
    return is_drawn("canary", "language", request_id, 0.5)


async def classified(router, request_id: str, model: str = "language"):
    body = {"model": model, "input": "w5"}
    return await router.http.post("/v1/classify", json=body, headers={"x-request-id": request_id})


async def test_half_of_the_requests_are_answered_by_the_canary(router):
    answers = [await classified(router, request_id) for request_id in IDS]
    assert {answer.status_code for answer in answers} == {200}
    ran = [(answer.headers["x-zooserve-model"], answer.headers["x-zooserve-version"]) for answer in answers]
    assert ran == [("language_next", "2") if drawn(request_id) else ("language", "1") for request_id in IDS]
    assert {answer.json()["model"] for answer in answers} == {"language"}  # what was asked for
    assert {answer.json()["data"][0]["label"] for answer in answers} == {"en"}


@pytest.mark.parametrize(
    ("path", "model", "body"),
    [
        ("/v1/rerank", "rerank", {"query": "w5", "documents": ["w5"]}),
        ("/v2/rerank", "rerank", {"query": "w5", "documents": ["w5"]}),
        ("/v1/rag_query", "rag_query", {"input": "w5"}),
        ("/embed_sparse", "embed_sparse", {"inputs": "w5"}),
    ],
)
async def test_every_route_splits_and_names_what_was_asked_for(router, path: str, model: str, body: dict[str, object]):
    for asked in (body, {**body, "model": model}):  # left out, it is the task's first
        answer = await router.http.post(path, json=asked)
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-zooserve-model"] == f"{model}_next"
        if path != "/embed_sparse":  # TEI's answer is the vectors alone
            assert answer.json()["model"] == model
    assert router.counted(COUNTED, model=model, release=f"{model}_next", outcome="ok") == 2


async def test_each_release_is_counted_by_what_it_answered(router):
    for request_id in IDS:
        await classified(router, request_id)
    canary = sum(map(drawn, IDS))
    assert 10 < canary < 30
    of_canary = {"model": "language", "release": "language_next", "version": "2", "role": "canary"}
    serving = {"model": "language", "release": "language", "version": "1", "role": "serving"}
    assert router.counted(COUNTED, **of_canary, outcome="ok") == canary
    assert router.counted(COUNTED, **serving, outcome="ok") == len(IDS) - canary
    assert router.counted("zooserve_release_duration_seconds_count", **of_canary) == canary
    assert router.counted("zooserve_requests_total", model="language_next", version="2", outcome="ok") == canary


async def test_what_fails_is_the_canarys_own_failure(router):
    router.zoo.faults["language"] = BackendFailed("broken")
    for request_id in IDS[:10]:
        assert (await classified(router, request_id)).status_code == 502
    canary = sum(map(drawn, IDS[:10]))
    assert router.counted(COUNTED, role="canary", outcome="BackendFailed") == canary
    assert router.counted(COUNTED, role="serving", outcome="BackendFailed") == 10 - canary


async def test_what_cannot_be_right_is_no_releases_fault(router):
    for request_id in IDS[:10]:
        refused = await router.http.post(
            "/v1/classify", json={"model": "language", "input": 3}, headers={"x-request-id": request_id}
        )
        assert refused.status_code == 400
    assert router.counted(COUNTED, model="language") == 0


@pytest.mark.parametrize("name", ["language@1", "language_next", "language_next@2"])
async def test_who_names_a_release_is_not_split(router, name: str):
    answers = [await classified(router, request_id, name) for request_id in IDS[:10]]
    asked = name.partition("@")[0]
    assert {answer.headers["x-zooserve-model"] for answer in answers} == {asked}
    assert {answer.json()["model"] for answer in answers} == {asked}
    assert router.counted(COUNTED, model="language") == 0


async def test_a_canary_that_is_down_fails_nobody(router):
    router.zoo.faults["embed_next"] = BadInput("broken")  # whatever its probes meet
    router.services.readiness.doubt(router.services.catalogue.resolve("embed_next"), BackendUnavailable("gone"))
    assert router.counted("zooserve_model_ready", model="embed_next", version="2") == 0
    assert router.counted("zooserve_release_share", release="embed_next", role="canary") == 0
    assert router.counted("zooserve_release_share", release="embed", role="serving") == 1
    for caller in range(10):
        asked = {"model": "embed", "input": "w5"}
        answer = await router.http.post("/v1/embeddings", json=asked, headers={"authorization": f"Bearer {caller}"})
        assert (answer.status_code, answer.headers["x-zooserve-model"]) == (200, "embed")


async def test_a_caller_gets_the_same_release_each_time(router):
    met = {}
    for caller in range(12):
        headers = {"authorization": f"Bearer {caller}"}
        asked = [
            await router.http.post("/v1/embeddings", json={"model": "embed", "input": text}, headers=headers)
            for text in ("w5", "w6", ["w7", "w8"], [5, 6])
        ]
        met[caller] = {(one.headers["x-zooserve-model"], one.json()["model"]) for one in asked}
        assert len({one.headers["x-zooserve-embedding-space"] for one in asked}) == 1
    assert {frozenset(releases) for releases in met.values()} == {
        frozenset({("embed", "embed")}), frozenset({("embed_next", "embed")})
    }  # fmt: skip


async def of_the_canary(router) -> dict[str, str]:
    """The headers of a caller whom the canary of `embed` answers."""
    for caller in range(64):
        headers = {"authorization": f"Bearer {caller}"}
        answer = await router.http.post("/v1/embeddings", json={"model": "embed", "input": "w5"}, headers=headers)
        if answer.headers["x-zooserve-model"] == "embed_next":
            return headers
    raise AssertionError("none of 64 callers got the canary")


async def test_the_canarys_own_triton_models_compute(router):
    headers = await of_the_canary(router)
    router.zoo.asked.clear()
    for text in ("w5", [5, 6]):
        await router.http.post("/v1/embeddings", json={"model": "embed", "input": text}, headers=headers)
    await router.http.post("/v2/models/embed/infer", content=KSERVE, headers=headers)
    assert [asked.model for asked in router.zoo.asked] == ["embed_next", "embed_next_encoder"]
    assert [path for _, path, _, _ in router.zoo.sent] == ["/v2/models/embed_next/infer"]


async def test_kserve_requests_are_split_unless_they_say_the_version_or_a_triton_model(router):
    for path, split in (("language", True), ("language/versions/1", False), ("language@1", False)):
        answers = [
            await router.http.post(f"/v2/models/{path}/infer", content=KSERVE, headers={"x-request-id": request_id})
            for request_id in IDS[:20]
        ]
        assert {answer.status_code for answer in answers} == {200}
        canary = [answer.headers["x-zooserve-model"] == "language_next" for answer in answers]
        assert canary == [split and drawn(request_id) for request_id in IDS[:20]]
    router.zoo.sent.clear()
    for caller in range(8):
        headers = {"authorization": f"Bearer {caller}"}
        await router.http.post("/v2/models/embed_bulk/infer", content=KSERVE, headers=headers)
    assert {path for _, path, _, _ in router.zoo.sent} == {"/v2/models/embed_bulk/infer"}


async def test_what_the_releases_are_to_get_is_told_from_the_start(router):
    share = "zooserve_release_share"
    assert router.counted(share, model="language", release="language", version="1", role="serving") == 0.5
    assert router.counted(share, model="language", release="language_next", version="2", role="canary") == 0.5
    exposed = router.metrics.exposition().decode()
    zero = (
        'zooserve_release_requests_total{model="embed",outcome="ok",release="embed_next",role="canary",version="2"} 0.0'
    )
    assert zero in exposed


async def test_releases_are_listed_with_the_model_that_serves(router):
    listed = (await router.http.get("/v1/models/language")).json()
    assert listed["releases"] == {"canary": {"model": "language_next", "share": 0.5, "by": "request"}}
    assert "releases" not in (await router.http.get("/v1/models/language_next")).json()


async def test_every_model_tells_its_task_and_readiness(router):
    assert router.counted("zooserve_model_info", model="language", task="classify", runs_on="zoo", weights="") == 1
    assert router.counted("zooserve_model_ready", model="language", version="1") == 1
    assert router.counted("zooserve_model_ready", model="chat", version="1") == 0  # nothing answers for it here


async def test_a_metric_of_a_space_begins_at_nothing(router):
    line = 'zooserve_embedding_space_mismatches_total{model="embed",version="1"} 0.0'
    assert line in router.metrics.exposition().decode()
