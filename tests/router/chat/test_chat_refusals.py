"""What a chat model has no room for is counted by its reason; a breaker's refusal is no doubt of the model."""

import asyncio
from typing import Any

import pytest

from zooserve.errors import BackendUnavailable
from zooserve_router.breaker import BREAKER_OPEN

OPEN = BackendUnavailable("left alone", code=BREAKER_OPEN, retry_after_s=0.2)


def refused(edge: Any) -> dict[str, float]:
    """The refusals by reason."""
    start = 'zooserve_admission_refused_total{class="interactive",model="chat",reason="'
    lines = [line for line in edge.metrics.exposition().decode().splitlines() if line.startswith(start)]
    return {line.removeprefix(start).partition('"')[0]: float(line.rpartition(" ")[2]) for line in lines}


async def test_beyond_the_queue_is_counted_as_queue(edge: Any) -> None:
    edge.budget.take(1000)
    waiting = [asyncio.create_task(edge.chat()) for _ in range(edge.queue.most_waiting)]
    while edge.queue.waiting < edge.queue.most_waiting:  # noqa: ASYNC110 - they come in their own time
        await asyncio.sleep(0)
    assert (await edge.chat()).status_code == 429
    assert refused(edge) == {"queue": 1}
    edge.queue.give_back(1000)
    await asyncio.gather(*waiting)


async def test_a_deadline_that_passes_while_waiting_is_counted_as_deadline(edge: Any) -> None:
    edge.budget.take(1000)
    body = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}]}
    answer = await edge.http.post("/v1/chat/completions", json=body, headers={"x-request-timeout-ms": "20"})
    assert answer.status_code == 504
    assert refused(edge) == {"deadline": 1}


async def test_a_deadline_that_passes_while_the_leaf_works_is_no_refusal(edge: Any) -> None:
    edge.leaf.hold = asyncio.Event()
    body = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}]}
    answer = await edge.http.post("/v1/chat/completions", json=body, headers={"x-request-timeout-ms": "50"})
    assert answer.status_code == 504
    assert refused(edge) == {}


@pytest.mark.parametrize("stream", [False, True])
async def test_an_open_breaker_is_503_with_the_time_to_come_back_and_no_doubt(edge: Any, stream: bool) -> None:
    edge.leaf.script = [OPEN]
    answer = await edge.chat(stream=stream)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "breaker_open")
    assert (answer.headers["retry-after"], answer.headers["retry-after-ms"]) == ("1", "200")
    assert refused(edge) == {"breaker": 1}
    assert edge.service.ready_model(edge.app.state.services.catalogue.resolve("chat"))


async def test_a_model_that_is_not_ready_counts_its_refusals(edge: Any) -> None:
    edge.leaf.script = [BackendUnavailable("gone")]
    assert (await edge.chat()).status_code == 503
    assert (await edge.chat()).status_code == 503
    assert refused(edge) == {"not_ready": 1}


async def test_a_backend_that_is_mistrusted_gets_one_call_of_a_request_at_a_time(edge: Any) -> None:
    class Mistrusted(type(edge.leaf)):
        """Its breaker is not closed."""

        is_mistrusted = True

    leaf, most_open = edge.leaf, 0
    generate = leaf.generate

    async def counting(work: Any, timeout_s: float) -> Any:
        nonlocal most_open
        async for piece in generate(work, timeout_s):
            most_open = max(most_open, leaf.open)
            yield piece

    leaf.generate = counting
    assert (await edge.chat(n=3)).status_code == 200
    assert most_open > 1
    most_open, leaf.__class__ = 0, Mistrusted
    assert (await edge.chat(n=3)).status_code == 200
    assert most_open == 1


def test_the_room_of_a_model_is_told_at_the_start(edge: Any) -> None:
    assert b'zooserve_chat_budget_tokens{model="chat"} 1000.0' in edge.metrics.exposition()
