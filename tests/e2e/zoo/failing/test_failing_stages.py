"""Every stage of every ensemble made to fail: the answer, its header, the metric and the trace say which it was."""

import asyncio
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

# How a stage fails, and the reason that is told.
WAYS = {"error": "error", "exception": "exception", "native": "error"}


def label(zoo: Any, ensemble: str, stage: str) -> str:
    return zoo.ensemble(ensemble).step_of(stage).stage.label


async def assert_named(zoo: Any, ensemble: str, stage: str, reason: str, status: int, answer: Any, router: Any) -> None:
    assert answer.failed_stage == label(zoo, ensemble, stage), answer.text
    assert answer.http.status_code == status
    assert f"{stage} version " in answer.text
    version = label(zoo, ensemble, stage).partition("/")[2]
    assert router.counted(zoo.public_name(ensemble), stage, version, reason)
    assert router.blamed(answer.trace_id) == {"infer": stage, "zooserve.request": stage}


@pytest.mark.parametrize("way", WAYS)
async def test_a_stage_that_fails_is_named(failing_zoo: Any, ensemble: str, stage: str, way: str) -> None:
    async with failing_zoo.router() as router:
        with failing_zoo.failing(stage, way):
            answer = await router.ask(ensemble)
        if way == "native" and failing_zoo.branches(ensemble) and answer.failed_stage == "unknown":
            # Of two branches that end together a trace tells no more: then both are told, and none is blamed.
            assert "its trace fits " in answer.text
            assert f"{stage} version " in answer.text
        else:
            await assert_named(failing_zoo, ensemble, stage, WAYS[way], 502, answer, router)
        assert (await router.ask(ensemble)).http.status_code == 200


async def test_a_stage_whose_queue_lets_a_request_expire_is_named(failing_zoo: Any, ensemble: str, stage: str) -> None:
    async with failing_zoo.router() as router:
        with failing_zoo.failing(stage, "slow"):
            first = asyncio.create_task(router.ask(ensemble))
            await failing_zoo.until_running(stage)
            second = asyncio.create_task(router.ask(ensemble, timeout_ms=30))
            await failing_zoo.until_waiting(stage)
            await asyncio.sleep(0.05)
        assert (await first).http.status_code == 200
        await assert_named(failing_zoo, ensemble, stage, "queue_timeout", 504, await second, router)


async def test_a_stage_that_leaves_its_outputs_out_is_named(failing_zoo: Any, ensemble: str, stage: str) -> None:
    async with failing_zoo.router() as router:
        with failing_zoo.failing(stage, "nothing"):
            answer = await router.ask(ensemble)
        if failing_zoo.ensemble(ensemble).followers_of(failing_zoo.ensemble(ensemble).step_of(stage)):
            await assert_named(failing_zoo, ensemble, stage, "bad_tensor", 502, answer, router)
        else:  # Triton passes on what there is; a KServe client sees that for himself
            assert answer.http.status_code == 200


async def test_a_stage_of_ours_that_makes_what_its_configuration_does_not_say_names_itself(failing_zoo: Any) -> None:
    async with failing_zoo.router() as router:
        with failing_zoo.failing("embed_encoder", "broken"):
            answer = await router.ask("embed")
    assert answer.failed_stage == "embed_encoder/1"
    assert "it made sentence_embedding as int8 [2, 384]; its configuration says TYPE_FP32 [-1, 384]" in answer.text


async def test_a_full_first_queue_is_named(failing_zoo: Any) -> None:
    for name in failing_zoo.names:
        first = failing_zoo.ensemble(name).steps[0].stage
        async with failing_zoo.router() as router:
            with failing_zoo.failing(first.model, "slow"):
                running = [asyncio.create_task(router.ask(name))]
                await failing_zoo.until_running(first.model)
                running += [asyncio.create_task(router.ask(name)) for _ in range(4)]
                first_to_end = asyncio.as_completed(running)
                answers = [await next(first_to_end), await next(first_to_end)]
            await asyncio.gather(*running)
        for answer in answers:
            assert answer.http.status_code == 429, answer.text
            assert answer.failed_stage == first.label
            assert answer.http.headers["retry-after"]


async def test_without_a_trace_log_a_native_error_says_that_its_stage_is_not_known(failing_zoo: Any) -> None:
    async with failing_zoo.router(traced=False) as router:
        with failing_zoo.failing("embed_encoder", "native"):
            answer = await router.ask("embed")
    assert answer.http.status_code == 502
    assert answer.failed_stage == "unknown"
    assert "a stage that is not known (its text names none, and there is no trace log)" in answer.text
    assert "onnx runtime error 2: provoked" in answer.text


async def test_a_stage_that_is_not_loaded_is_named_with_its_ensemble_gone(failing_zoo: Any) -> None:
    client = failing_zoo.zoo.client
    client.unload_model("embed_encoder")
    try:
        async with failing_zoo.router() as router:
            answer = await router.ask("embed")
    finally:
        client.load_model("embed_encoder")
    assert answer.http.status_code == 503
    assert answer.failed_stage == "embed_encoder/1"
    assert "embed is not available because of embed_encoder version 1" in answer.text
