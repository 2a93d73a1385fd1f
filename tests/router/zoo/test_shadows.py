"""Some requests are computed once more, for nobody: when, how many at once, and that nothing of it reaches a caller."""

import asyncio

import pytest

from zooserve.catalogue import Canary, Catalogue, Releases, Shadow
from zooserve.errors import BackendFailed, BackendUnavailable
from zooserve.settings import RouterSettings
from zooserve_router.shadows import Shadows

COUNTED = "zooserve_release_requests_total"
OF_SHADOW = {"model": "rerank", "release": "rerank_trees", "version": "1", "role": "shadow"}
AT_ONCE = 8


@pytest.fixture
def catalogue(catalogue: Catalogue) -> Catalogue:
    """`rerank`, `embed` and `classify` with a shadow of every request each, `language` with a canary as well."""
    models = {model.name: model for model in catalogue}
    next_one = models["language"].model_copy(update={"name": "language_next", "aliases": (), "version": 2})
    models["language_next"] = next_one
    models["language_then"] = next_one.model_copy(update={"name": "language_then", "version": 3})
    every = {
        "rerank": Releases(shadow=Shadow(model="rerank_trees", share=1.0)),
        "embed": Releases(shadow=Shadow(model="embed_multilingual", share=1.0)),
        "language": Releases(
            canary=Canary(model="language_next", share=1.0), shadow=Shadow(model="language_then", share=1.0)
        ),
    }
    return Catalogue(tuple(model.model_copy(update={"releases": every.get(name)}) for name, model in models.items()))


@pytest.fixture
def bounds() -> RouterSettings:
    return RouterSettings(bulk_tokens_in_flight=200)


def ranking(router, query: str = "w5", **headers: str):
    body = {"model": "rerank", "query": query, "documents": ["w5 w6", "w7"]}
    return router.http.post("/v2/rerank", json=body, headers=headers)


async def until(holds) -> None:
    """Let the router work until it holds."""
    for _ in range(1000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("did not hold")


def asked(router, triton_model: str) -> int:
    return sum(wanted.model == triton_model for wanted in router.zoo.asked)


async def test_what_was_answered_is_computed_again_and_counted(router):
    answer = await ranking(router, **{"x-request-id": "mine"})
    await until(lambda: router.counted(COUNTED, **OF_SHADOW, outcome="ok") == 1)
    assert answer.headers["x-zooserve-model"] == "rerank"
    assert answer.json()["model"] == "rerank"
    assert [(wanted.model, wanted.request_id) for wanted in router.zoo.asked] == [
        ("rerank", "mine"), ("rerank_trees", "mine")
    ]  # fmt: skip
    assert router.counted("zooserve_release_duration_seconds_count", **OF_SHADOW) == 1
    assert router.counted(COUNTED, role="serving", release="rerank", outcome="ok") == 1
    assert router.counted("zooserve_requests_total", model="rerank_trees") == 0  # nobody asked for it
    assert router.taken_tokens == 0


async def test_a_shadow_that_hangs_holds_nobody_up(router):
    router.zoo.held["rerank_trees"] = asyncio.Event()
    assert (await ranking(router)).status_code == 200
    await until(lambda: asked(router, "rerank_trees") == 1)
    assert (await ranking(router)).status_code == 200
    assert router.services.dispatch.budgets["interactive"].taken_tokens == 0
    assert router.services.dispatch.budgets["bulk"].taken_tokens > 0
    router.zoo.held["rerank_trees"].set()
    await until(lambda: router.counted(COUNTED, **OF_SHADOW, outcome="ok") == 2)
    assert router.taken_tokens == 0


async def test_a_shadow_has_more_time_than_a_caller_in_a_hurry(router):
    """Else a shadow that is slower than callers wait would be found hanging, proven again, and found hanging."""
    router.zoo.held["rerank_trees"] = asyncio.Event()
    for _ in range(3):
        await ranking(router, **{"x-request-timeout-ms": "1500"})
    await until(lambda: asked(router, "rerank_trees") == 3)
    of_shadow = [wanted for wanted in router.zoo.asked if wanted.model == "rerank_trees"]
    assert all(wanted.timeout_s > 30 for wanted in of_shadow)
    router.zoo.held["rerank_trees"].set()
    await until(lambda: router.counted(COUNTED, **OF_SHADOW, outcome="ok") == 3)


async def test_a_caller_who_leaves_afterwards_does_not_end_the_shadow(router):
    router.zoo.held["rerank_trees"] = asyncio.Event()
    caller = asyncio.create_task(ranking(router))
    await until(lambda: asked(router, "rerank_trees") == 1)
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    router.zoo.held["rerank_trees"].set()
    await until(lambda: router.counted(COUNTED, **OF_SHADOW, outcome="ok") == 1)


async def test_a_caller_who_leaves_before_his_answer_has_no_shadow(router):
    router.zoo.held["rerank"] = asyncio.Event()
    caller = asyncio.create_task(ranking(router))
    await until(lambda: asked(router, "rerank") == 1)
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    router.zoo.held["rerank"].set()
    await router.services.dispatch.drain(5)
    await ranking(router)
    await until(lambda: router.counted(COUNTED, **OF_SHADOW, outcome="ok") == 1)
    assert asked(router, "rerank_trees") == 1


async def test_a_request_that_failed_has_no_shadow(router):
    router.zoo.faults["rerank"] = BackendFailed("broken")
    assert (await ranking(router)).status_code == 502
    del router.zoo.faults["rerank"]
    await ranking(router)
    await until(lambda: router.counted(COUNTED, **OF_SHADOW, outcome="ok") == 1)
    assert asked(router, "rerank_trees") == 1


async def test_what_goes_wrong_in_a_shadow_is_its_own(router, caplog):
    for fault, outcome in ((BackendFailed("broken"), "BackendFailed"), (ZeroDivisionError(), "InternalError")):
        router.zoo.faults["rerank_trees"] = fault
        assert (await ranking(router, **{"x-request-id": outcome})).status_code == 200
        await until(lambda outcome=outcome: router.counted(COUNTED, **OF_SHADOW, outcome=outcome) == 1)
    assert [record.message for record in caplog.records if record.name == "zooserve_router.shadows"] == [
        "the shadow rerank_trees broke on request InternalError: ZeroDivisionError"
    ]
    assert router.counted(COUNTED, role="serving", outcome="ok") == 2
    assert router.taken_tokens == 0


async def test_no_more_than_eight_run_at_once_and_the_rest_are_left_out(router):
    router.zoo.held["rerank_trees"] = asyncio.Event()
    for count in range(AT_ONCE + 3):
        assert (await ranking(router)).status_code == 200
        await until(lambda count=count: asked(router, "rerank_trees") == min(count + 1, AT_ONCE))
    assert router.counted(COUNTED, **OF_SHADOW, outcome="skipped") == 3
    assert router.counted("zooserve_release_duration_seconds_count", **OF_SHADOW) == 0
    router.zoo.held["rerank_trees"].set()
    await until(lambda: router.counted(COUNTED, **OF_SHADOW, outcome="ok") == AT_ONCE)
    await ranking(router)
    await until(lambda: router.counted(COUNTED, **OF_SHADOW, outcome="ok") == AT_ONCE + 1)


async def test_a_shadow_is_admitted_in_the_bulk_class_or_not_at_all(router):
    router.services.dispatch.budgets["bulk"].take(200)
    assert (await ranking(router)).status_code == 200
    await until(lambda: router.counted(COUNTED, **OF_SHADOW, outcome="Overloaded") == 1)
    assert asked(router, "rerank_trees") == 0


async def test_a_shadow_that_is_not_ready_is_left_out(router):
    router.zoo.faults["rerank_trees"] = BackendUnavailable("gone")
    router.services.readiness.doubt(router.services.catalogue.resolve("rerank_trees"), BackendUnavailable("gone"))
    assert router.counted("zooserve_release_share", **OF_SHADOW) == 0
    assert (await ranking(router)).status_code == 200
    await until(lambda: router.counted(COUNTED, **OF_SHADOW, outcome="skipped") == 1)
    assert router.counted("zooserve_release_share", model="rerank", role="serving") == 1


async def test_a_router_that_stops_lets_go_of_its_shadows(router):
    router.zoo.held["rerank_trees"] = asyncio.Event()
    await ranking(router)
    await until(lambda: asked(router, "rerank_trees") == 1)
    await router.services.shadows.close()
    assert router.counted(COUNTED, **OF_SHADOW, outcome="cancelled") == 1
    router.zoo.held["rerank_trees"].set()
    await router.services.dispatch.drain(5)
    await asyncio.sleep(0)
    assert router.taken_tokens == 0


async def test_a_shadow_of_another_space_embeds_with_its_own_prompts(router, texts_of):
    answer = await router.embed(["w5", "w6"], input_type="query")
    await until(lambda: asked(router, "embed_multilingual") == 1)
    assert answer.headers["x-zooserve-embedding-space"] == router.services.spaces.of(
        router.services.catalogue.resolve("embed")
    )
    sent = {wanted.model: texts_of(wanted.inputs[0]) for wanted in router.zoo.asked}
    assert sent == {"embed": ["w5", "w6"], "embed_multilingual": ["query: w5", "query: w6"]}


async def test_token_ids_and_long_texts_have_no_shadow(router):
    for fields in ({"input": [5, 6]}, {"input": "w5 " * 300, "long_text": "mean"}):
        assert (await router.http.post("/v1/embeddings", json={"model": "embed", **fields})).status_code == 200
    for _ in range(20):
        await asyncio.sleep(0)
    assert router.counted(COUNTED, model="embed", role="shadow") == 0  # neither computed nor failed


async def test_what_the_canary_answered_has_a_shadow_too(router):
    answer = await router.http.post("/v1/classify", json={"model": "language", "input": "w5"})
    assert answer.headers["x-zooserve-model"] == "language_next"
    labels = {"model": "language", "release": "language_then", "version": "3", "role": "shadow"}
    await until(lambda: router.counted(COUNTED, **labels, outcome="ok") == 1)


@pytest.mark.parametrize("name", ["language@1", "language_next"])
async def test_who_asks_for_one_release_alone_has_no_shadow(router, name: str):
    assert (await router.http.post("/v1/classify", json={"model": name, "input": "w5"})).status_code == 200
    for _ in range(20):
        await asyncio.sleep(0)
    assert router.counted(COUNTED, model="language") == 0


async def test_a_kserve_request_is_sent_to_the_shadow_as_it_came(router):
    body = b'{"inputs": [{"name": "text", "shape": [2, 1], "datatype": "BYTES", "data": ["w5", "w6"]}]}'
    assert (await router.http.post("/v2/models/rerank/infer", content=body)).status_code == 200
    await until(lambda: router.counted(COUNTED, **OF_SHADOW, outcome="ok") == 1)
    assert [(path, sent) for _, path, _, sent in router.zoo.sent] == [
        ("/v2/models/rerank/infer", body), ("/v2/models/rerank_trees/infer", body)
    ]  # fmt: skip


async def test_the_shadow_begins_once_the_answer_has_been_sent(router):
    """A response runs its background after its last byte."""
    sent: list[str] = []

    class Told(Shadows):
        def after(self, answered, context, work):
            async def computed(model, its):
                sent.append("shadow")

            return super().after(answered, context, computed)

    services = router.services
    told = Told(services.releases, services.readiness.is_ready, services.metrics.releases)
    router.app.state.services = type(services)(**{**vars(services), "shadows": told})

    async def send(message):
        sent.append(message["type"])

    body = b'{"model": "rerank", "query": "w5", "documents": ["w5"]}'
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        if not messages:
            await asyncio.Event().wait()
        return messages.pop()

    scope = {
        "type": "http", "method": "POST", "path": "/v2/rerank", "raw_path": b"/v2/rerank", "query_string": b"",
        "headers": [(b"content-type", b"application/json")], "http_version": "1.1", "root_path": "", "scheme": "http",
        "server": ("router", 80), "client": ("127.0.0.1", 1), "app": router.app, "state": {},
    }  # fmt: skip
    await router.app(scope, receive, send)
    await until(lambda: "shadow" in sent)
    assert sent == ["http.response.start", "http.response.body", "shadow"]
