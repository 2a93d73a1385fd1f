"""How chats with an upstream end when they are not finished: left, late, or with the engine itself gone."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.e2e

LONG = 512
"""Tokens, all that the model grants, that take the engine many seconds: whoever leaves, leaves in the middle."""


@pytest.fixture
async def http(upstream_router: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=upstream_router.url, timeout=60) as client:
        yield client


def body(content: str = "Count from one upwards, and never stop.", **fields: Any) -> dict[str, Any]:
    asked = {"model": "chat_json", "messages": [{"role": "user", "content": content}], "temperature": 0}
    # No end-of-turn token: the answer goes on to its limit.
    return {**asked, "max_tokens": LONG, "logit_bias": {"2": -100, "0": -100}, **fields}


async def until(holds: Callable[[], bool]) -> None:
    """Look again and again; the test's own timeout bounds it."""
    while not await asyncio.to_thread(holds):  # noqa: ASYNC110 - a server has no event for it
        await asyncio.sleep(0.02)


def at_rest(engine: Any) -> Callable[[], bool]:
    return lambda: engine.busy_slots() == 0


async def begun(http: httpx.AsyncClient, stack: AsyncExitStack) -> AsyncIterator[str]:
    """A stream whose first text has come: the lines that follow. It is left where the stack ends, or with its lines."""
    answer = await stack.enter_async_context(http.stream("POST", "/v1/chat/completions", json=body(stream=True)))
    assert answer.status_code == 200
    lines = answer.aiter_lines()
    while '"content":"' not in (line := await anext(lines)) or '"content":""' in line:
        pass
    return lines


async def test_a_client_that_leaves_frees_the_engines_slot(http: httpx.AsyncClient, upstream_router: Any) -> None:
    engine = upstream_router.engine
    before = engine.metric("tokens_predicted_total")
    async with AsyncExitStack() as stack:
        lines = await begun(http, stack)
        assert engine.busy_slots() == 1
        del lines
    await until(at_rest(engine))
    assert engine.metric("tokens_predicted_total") - before < LONG


async def test_a_client_that_leaves_before_the_first_token_frees_the_slot_too(
    http: httpx.AsyncClient, upstream_router: Any
) -> None:
    engine = upstream_router.engine
    before = engine.metric("tokens_predicted_total")
    # No more than two batches of 256 follow: half of the prompt is never read.
    prompt = "an unread word " * 240
    task = asyncio.create_task(http.post("/v1/chat/completions", json=body(prompt, max_tokens=20)))
    await until(lambda: engine.busy_slots() == 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await until(at_rest(engine))
    assert engine.metric("tokens_predicted_total") == before


async def test_the_deadline_ends_the_answer_and_frees_the_slot(
    http: httpx.AsyncClient, upstream_router: Any, duration_ms: Callable[[Callable[[], object]], str]
) -> None:
    engine = upstream_router.engine
    url = f"{upstream_router.url}/v1/chat/completions"
    short_of_it = duration_ms(lambda: httpx.post(url, json=body(max_tokens=LONG // 10), timeout=60))
    before = engine.metric("tokens_predicted_total")
    answer = await http.post("/v1/chat/completions", json=body(), headers={"x-request-timeout-ms": short_of_it})
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "deadline_exceeded")
    await until(at_rest(engine))
    assert engine.metric("tokens_predicted_total") - before < LONG


async def test_what_waits_waits_in_the_router_and_leaves_no_trace_in_the_engine(
    http: httpx.AsyncClient, upstream_router: Any
) -> None:
    engine = upstream_router.engine
    async with AsyncExitStack() as stack:
        streams = [await begun(http, stack) for _ in range(engine.server.orders.slots)]
        assert engine.busy_slots() == engine.server.orders.slots
        before = engine.metric("prompt_tokens_total")
        answer = await http.post("/v1/chat/completions", json=body(), headers={"x-request-timeout-ms": "50"})
        assert answer.status_code == 504
        assert engine.metric("requests_deferred") == 0
        assert engine.metric("prompt_tokens_total") == before
        del streams
    await until(at_rest(engine))


async def test_an_engine_that_dies_is_unavailable_until_it_runs_again(
    http: httpx.AsyncClient, upstream_router: Any
) -> None:
    server = upstream_router.engine.server
    try:
        async with AsyncExitStack() as stack:
            lines = await begun(http, stack)
            os.kill(server.pid, signal.SIGKILL)
            events = [line.removeprefix("data: ") async for line in lines if line.startswith("data: ")]
        assert json.loads(events[-2])["error"]["code"] == "backend_unavailable"
        assert events[-1] == "[DONE]"
        refused = await http.post("/v1/chat/completions", json=body(max_tokens=2))
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "backend_unavailable")
    finally:
        server.stop(5)
        server.start()
        await asyncio.to_thread(server.wait_until_loaded, 60)
    await until(lambda: httpx.get(f"{upstream_router.url}/health/ready").json()["models"][0]["ready"])
    again = await http.post("/v1/chat/completions", json=body(max_tokens=2))
    assert again.status_code == 200
