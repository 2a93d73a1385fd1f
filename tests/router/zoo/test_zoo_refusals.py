"""What a model of the zoo has no room for is counted by its reason; a breaker's refusal is no doubt of the model."""

import asyncio

import pytest

from zooserve.errors import BackendUnavailable
from zooserve.settings import RouterSettings
from zooserve_router.breaker import BREAKER_OPEN

OPEN = BackendUnavailable("left alone", code=BREAKER_OPEN, retry_after_s=2.4)
REASONS = {"tokens", "requests", "breaker", "not_ready"}


@pytest.fixture
def bounds():
    return RouterSettings(interactive_tokens_in_flight=100, bulk_tokens_in_flight=100, zoo_requests_in_flight=4)


def refused(router, slo_class="interactive"):
    """The refusals of `embed` by reason."""
    start = f'zooserve_admission_refused_total{{class="{slo_class}",model="embed",reason="'
    lines = [line for line in router.metrics.exposition().decode().splitlines() if line.startswith(start)]
    return {line.removeprefix(start).partition('"')[0]: float(line.rpartition(" ")[2]) for line in lines}


async def test_every_reason_is_there_at_zero_before_anything_is_refused(router):
    for slo_class in ("interactive", "bulk"):
        assert refused(router, slo_class) == dict.fromkeys(REASONS, 0)


async def test_too_many_tokens_are_counted_as_such(router):
    router.zoo.open.clear()
    first = asyncio.create_task(router.embed("w5 " * 100))
    while not router.zoo.asked:  # noqa: ASYNC110 (the zoo's turn)
        await asyncio.sleep(0)
    assert (await router.embed("w5 " * 100)).status_code == 429
    assert refused(router) == {**dict.fromkeys(REASONS, 0), "tokens": 1}
    router.zoo.open.set()
    await first


async def test_too_many_requests_are_counted_as_such(router):
    router.zoo.open.clear()
    running = [asyncio.create_task(router.embed("w5")) for _ in range(2)]
    while len(router.zoo.asked) < 2:  # noqa: ASYNC110 (the zoo's turn)
        await asyncio.sleep(0)
    assert (await router.embed("w5")).status_code == 429
    assert refused(router) == {**dict.fromkeys(REASONS, 0), "requests": 1}
    router.zoo.open.set()
    await asyncio.gather(*running)


async def test_an_open_breaker_is_503_with_the_time_to_come_back_and_no_doubt_of_the_model(router):
    router.zoo.fault = OPEN
    answer = await router.embed("w5")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "breaker_open")
    assert (answer.headers["retry-after"], answer.headers["retry-after-ms"]) == ("2", "2400")
    assert refused(router) == {**dict.fromkeys(REASONS, 0), "breaker": 1}
    assert router.services.readiness.is_ready("embed")
    router.zoo.fault = None
    assert (await router.embed("w5")).status_code == 200


async def test_a_request_in_many_chunks_is_one_refusal(router):
    router.zoo.fault = OPEN
    assert (await router.embed(["w5"] * 32 * 10)).status_code == 503
    assert len(router.zoo.asked) > 1
    assert refused(router, "bulk")["breaker"] == 1


async def test_a_zoo_that_is_mistrusted_gets_one_chunk_of_a_request_at_a_time(router):
    """Its breaker lets one call try: the others of the same request would be refused, and it with them."""
    texts = [f"w{5 + number}" for number in range(200)]
    assert (await router.embed(texts)).status_code == 200
    assert router.zoo.most_busy > 1
    router.zoo.most_busy, router.zoo.is_mistrusted = 0, True
    assert (await router.embed(texts)).status_code == 200
    assert router.zoo.most_busy == 1


async def test_a_model_that_is_not_ready_counts_its_refusals(router):
    router.zoo.fault = BackendUnavailable("connection refused")
    assert (await router.embed("w5")).status_code == 503
    assert refused(router)["not_ready"] == 0, "that one was sent"
    answer = await router.embed("w5")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert refused(router) == {**dict.fromkeys(REASONS, 0), "not_ready": 1}
