"""Admission, deadlines and cancellation of work for the zoo."""

import asyncio

import pytest

from zooserve.errors import BackendFailed, BackendUnavailable, DeadlineExceeded, FailedStage, Overloaded
from zooserve.settings import RouterSettings

EN = "/v1/embeddings"


@pytest.fixture
def bounds():
    return RouterSettings(interactive_tokens_in_flight=100, bulk_tokens_in_flight=100)


async def asked(router, count):
    """Let the router work until the zoo was asked that often."""
    for _ in range(1000):
        if len(router.zoo.asked) >= count:
            return
        await asyncio.sleep(0)
    raise AssertionError(f"the zoo was asked {len(router.zoo.asked)} times, not {count}")


async def test_over_the_budget_is_429_with_the_time_to_come_back(router):
    router.zoo.open.clear()
    first = asyncio.create_task(router.embed("w5 " * 100))
    await asked(router, 1)
    refused = await router.embed("w5 " * 100)
    assert refused.status_code == 429
    assert refused.json()["error"]["type"] == "rate_limit_error"
    assert int(refused.headers["retry-after"]) >= 1
    assert int(refused.headers["retry-after-ms"]) > 0
    router.zoo.open.set()
    assert (await first).status_code == 200
    assert router.taken_tokens == 0


async def test_a_request_larger_than_the_budget_runs_alone(router):
    assert (await router.embed(["w5 " * 200] * 4)).status_code == 200
    assert router.taken_tokens == 0


async def test_the_classes_have_budgets_of_their_own(router):
    router.zoo.open.clear()
    interactive = asyncio.create_task(router.embed("w5 " * 100))
    await asked(router, 1)
    body = {"model": "embed", "input": "w5"}
    bulk = asyncio.create_task(router.http.post(EN, json=body, headers={"x-zooserve-class": "bulk"}))
    await asked(router, 2)
    router.zoo.open.set()
    assert (await bulk).status_code == (await interactive).status_code == 200


async def test_one_of_several_callers_may_leave_and_the_others_get_their_answers(router):
    router.zoo.open.clear()
    callers = [asyncio.create_task(router.embed(f"w{4 + place}")) for place in range(3)]
    await asked(router, 3)
    callers[1].cancel()
    await asyncio.gather(callers[1], return_exceptions=True)
    router.zoo.open.set()
    assert (await callers[0]).status_code == 200
    assert (await callers[2]).status_code == 200


async def test_the_tokens_of_a_caller_who_left_stay_taken_until_triton_answers(router):
    router.zoo.open.clear()
    caller = asyncio.create_task(router.embed("w5 " * 30))
    await asked(router, 1)
    taken = router.taken_tokens
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    assert router.taken_tokens == taken > 0
    router.zoo.open.set()
    await router.services.dispatch.drain(5)
    await asyncio.sleep(0)
    assert router.taken_tokens == 0


async def test_chunks_that_were_not_sent_are_dropped_when_the_caller_leaves(router):
    router.zoo.open.clear()
    caller = asyncio.create_task(router.embed(["w5"] * 32 * 10))
    await asked(router, 4)
    taken = router.taken_tokens
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    assert 0 < router.taken_tokens < taken
    router.zoo.open.set()
    await router.services.dispatch.drain(5)
    await asyncio.sleep(0)
    assert router.taken_tokens == 0
    assert len(router.zoo.asked) == 4


async def test_past_its_deadline_a_request_is_504(router):
    router.zoo.open.clear()
    answer = await router.http.post(EN, json={"model": "embed", "input": "w5"}, headers={"x-request-timeout-ms": "30"})
    assert answer.status_code == 504
    assert "x-request-timeout-ms" in answer.json()["error"]["message"]


async def test_a_failed_chunk_fails_the_request_and_stops_the_rest(router):
    router.zoo.fault = BackendFailed("embed_bulk failed: embed_encoder version 1: out of memory")
    answer = await router.embed(["w5"] * 32 * 10)
    assert answer.status_code == 502
    assert "embed_encoder version 1" in answer.json()["error"]["message"]
    await router.services.dispatch.drain(5)
    await asyncio.sleep(0)
    assert len(router.zoo.asked) == 4
    assert router.taken_tokens == 0


@pytest.mark.parametrize(
    ("fault", "status"),
    [(Overloaded("full"), 429), (DeadlineExceeded("late"), 504), (BackendFailed("broken"), 502)],
)
async def test_the_zoos_failures_keep_their_meaning(router, fault, status):
    router.zoo.fault = fault
    assert (await router.embed("w5")).status_code == status
    assert router.services.readiness.is_ready("embed")


async def test_an_unavailable_zoo_takes_the_model_out_until_it_has_proven_itself_again(router):
    router.zoo.fault = BackendUnavailable("connection refused")
    assert (await router.embed("w5")).status_code == 503
    assert not router.services.readiness.is_ready("embed")
    asked_before = len(router.zoo.asked)
    assert (await router.embed("w5")).status_code == 503
    assert all(wanted.request_id.startswith("probe") for wanted in router.zoo.asked[asked_before:])
    router.zoo.fault = None
    async with asyncio.timeout(10):
        while not router.services.readiness.is_ready("embed"):  # noqa: ASYNC110 (the probe's own pause)
            await asyncio.sleep(0.01)
    assert (await router.embed("w5")).status_code == 200


async def test_drain_lets_go_of_what_hangs(router):
    router.zoo.open.clear()
    caller = asyncio.create_task(router.embed("w5"))
    await asked(router, 1)
    await router.services.dispatch.drain(0.01)
    assert (await caller).status_code >= 500
    await asyncio.sleep(0)
    assert router.taken_tokens == 0


async def test_a_zoo_that_answers_nothing_is_not_ready_until_it_answers(router):
    router.zoo.open.clear()
    late = DeadlineExceeded("no answer")
    for _ in range(3):
        assert router.services.readiness.is_ready("embed")
        router.zoo.fault = late
        router.zoo.open.set()
        assert (await router.embed("w5")).status_code == 504
        router.zoo.open.clear()
    assert not router.services.readiness.is_ready("embed")
    router.zoo.fault = None
    router.zoo.open.set()
    for _ in range(1000):
        await asyncio.sleep(0)
    assert (await router.embed("w5")).status_code == 200


async def test_an_answer_between_two_that_are_late_shows_that_the_zoo_does_not_hang(router):
    for fault in (DeadlineExceeded("no answer"), DeadlineExceeded("no answer"), None) * 3:
        router.zoo.fault = fault
        await router.embed("w5")
    assert router.services.readiness.is_ready("embed")


ENCODER = FailedStage("embed_encoder", "1", "queue_timeout")
COUNTED = 'zooserve_stage_failures_total{model="embed",reason="queue_timeout",stage="embed_encoder",version="1"} 1.0'


async def test_requests_that_expire_in_a_queue_show_that_the_zoo_is_busy_and_not_that_it_hangs(router):
    router.zoo.fault = DeadlineExceeded("embed: the request waited for embed_encoder version 1", failed=ENCODER)
    for _ in range(5):
        assert (await router.embed("w5")).status_code == 504
    assert router.services.readiness.is_ready("embed")


async def test_a_stage_that_failed_is_in_the_body_a_header_and_the_metrics(router):
    router.zoo.fault = DeadlineExceeded("embed: the request waited for embed_encoder version 1", failed=ENCODER)
    answer = await router.embed("w5")
    assert answer.status_code == 504
    assert answer.json()["error"]["failed_stage"] == {
        "name": "embed_encoder",
        "version": "1",
        "reason": "queue_timeout",
    }
    assert answer.headers["x-zooserve-failed-stage"] == "embed_encoder/1"
    assert COUNTED in (await router.http.get("/metrics")).text


async def test_a_stage_that_fails_after_its_caller_got_his_answer_is_counted_all_the_same(router):
    router.zoo.open.clear()
    router.zoo.fault = DeadlineExceeded("embed: the request waited for embed_encoder version 1", failed=ENCODER)
    body = {"model": "embed", "input": "w5"}
    answer = await router.http.post(EN, json=body, headers={"x-request-timeout-ms": "20"})
    assert answer.status_code == 504
    assert "x-zooserve-failed-stage" not in answer.headers
    router.zoo.open.set()
    await router.services.dispatch.drain(5)
    await asyncio.sleep(0)
    assert COUNTED in (await router.http.get("/metrics")).text


async def test_a_failure_of_an_unknown_stage_says_so(router):
    router.zoo.fault = BackendFailed("embed failed", failed=FailedStage("", "", "error"))
    answer = await router.embed("w5")
    assert answer.headers["x-zooserve-failed-stage"] == "unknown"
    assert 'stage="unknown",version=""' in (await router.http.get("/metrics")).text
