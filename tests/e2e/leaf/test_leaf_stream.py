"""The leaf over Triton's gRPC streams: the contract as a client sees it."""

import asyncio
import json
import time
import urllib.request
from contextlib import aclosing
from itertools import pairwise
from typing import Any

import pytest

from zooserve.leaf.contract import CANCELLED, ERROR_PREFIX, PERF_OUTPUTS, STOP_NEEDS_ID

pytestmark = pytest.mark.e2e

FRANCE = "What is the capital of France?"
LONG = "Write a very long story about a dragon."


async def test_streamed_text_is_cumulative_and_ends_as_the_whole_answer(leaf: Any) -> None:
    whole = await leaf.answer(FRANCE)

    responses = await leaf.all(
        text_input=leaf.prompt(FRANCE),
        streaming=True,
        sampling_param_max_tokens=16,
        sampling_param_exclude_input_from_output=True,
    )

    texts = [each.text for each in responses]
    assert len(texts) > 4
    assert all(later.startswith(earlier) for earlier, later in pairwise(texts))
    assert texts[-1] == whole
    assert [each.final for each in responses] == [False] * (len(texts) - 1) + [True]


async def test_without_streaming_exactly_one_final_response_comes(leaf: Any) -> None:
    (only,) = await leaf.all(text_input=leaf.prompt("Hi"), sampling_param_max_tokens=4)

    assert only.final
    assert set(only.outputs) == {"text_output"}


async def test_the_prompt_is_echoed_and_only_the_first_text_is_used(leaf: Any) -> None:
    (only,) = await leaf.all(text_input=[leaf.prompt("Hi"), "second"], sampling_param_max_tokens=4)

    assert only.text.startswith(leaf.prompt("Hi"))
    assert "second" not in only.text


async def test_a_prompt_without_max_tokens_gets_32(leaf: Any) -> None:
    (only,) = await leaf.all(
        text_input=leaf.prompt(LONG), return_finish_reason=True, sampling_param_return_perf_metrics=True
    )

    assert only.outputs["finish_reason"] == "length"
    assert only.number("kv_cache_alloc_total_blocks") == -(-(28 + 32) // 32)


async def test_special_tokens_of_the_prompt_are_read_and_the_end_token_stays_inside(leaf: Any) -> None:
    (only,) = await leaf.all(
        text_input=leaf.prompt("Say hi."),
        sampling_param_max_tokens=200,
        return_finish_reason=True,
        return_stop_reason=True,
        sampling_param_exclude_input_from_output=True,
    )

    assert (only.outputs["finish_reason"], only.outputs["stop_reason"]) == ("stop", "None")
    assert "<|im" not in only.text


async def test_a_stop_string_over_tokens_is_found_told_and_kept_inside(leaf: Any) -> None:
    whole = await leaf.answer(FRANCE, sampling_param_max_tokens=24)
    stop = whole[7:18]

    responses = await leaf.all(
        text_input=leaf.prompt(FRANCE),
        streaming=True,
        sampling_param_max_tokens=24,
        sampling_param_stop=["never to be seen", stop],
        sampling_param_exclude_input_from_output=True,
        return_finish_reason=True,
        return_stop_reason=True,
    )

    assert responses[-1].text == whole[: whole.index(stop)]
    assert (responses[-1].outputs["finish_reason"], responses[-1].outputs["stop_reason"]) == ("stop", stop)
    assert all(responses[-1].text.startswith(each.text) for each in responses)
    assert {each.outputs["finish_reason"] for each in responses[:-1]} <= {"None"}


async def test_the_same_seed_gives_the_same_text_alone_and_in_a_batch(leaf: Any) -> None:
    asked = {"sampling_param_temperature": 0.9, "sampling_param_seed": 7}
    alone = await leaf.answer("Tell me a joke.", **asked)

    batch = await asyncio.gather(
        leaf.answer("Tell me a joke.", **asked), leaf.answer("Name a dog."), leaf.answer("Name a cat.")
    )

    assert batch[0] == alone
    assert await leaf.answer("Tell me a joke.", **(asked | {"sampling_param_seed": 8})) != alone


async def test_no_character_is_broken_in_a_stream(leaf: Any) -> None:
    responses = await leaf.all(
        text_input=leaf.prompt("Repeat exactly: 🎉🎊🦄 日本語 ñ"),
        streaming=True,
        sampling_param_max_tokens=40,
        sampling_param_exclude_input_from_output=True,
    )

    assert "🎉" in responses[-1].text
    assert not any("\N{REPLACEMENT CHARACTER}" in each.text for each in responses)


async def test_perf_times_are_in_order_and_agree_with_the_wall(leaf: Any) -> None:
    started = time.monotonic_ns()
    responses = await leaf.all(
        text_input=leaf.prompt(LONG),
        streaming=True,
        sampling_param_max_tokens=64,
        sampling_param_return_perf_metrics=True,
    )
    wall = time.monotonic_ns() - started

    last = responses[-1]
    times = [last.number(f"{name}_time_ns") for name in ("arrival", "first_scheduled", "first_token", "last_token")]
    assert times == sorted(times)
    assert started <= times[0]
    assert 0.9 * wall <= times[-1] - times[0] <= wall
    assert set(last.outputs) == {"text_output", *PERF_OUTPUTS}
    assert set(responses[0].outputs) == {"text_output"}


async def test_a_repeated_prefix_raises_the_reused_blocks(leaf: Any) -> None:
    prompt = leaf.prompt("Remember this list: " + ", ".join(f"item {n}" for n in range(60)))
    asked = {"text_input": prompt, "sampling_param_max_tokens": 2, "sampling_param_return_perf_metrics": True}

    (first,) = await leaf.all(**asked)
    (second,) = await leaf.all(**asked)

    assert second.number("kv_cache_reused_block") >= first.number("kv_cache_reused_block") + 5
    assert second.number("kv_cache_hit_rate") > first.number("kv_cache_hit_rate")
    total = second.number("kv_cache_reused_block") + second.number("kv_cache_alloc_new_blocks")
    assert total == second.number("kv_cache_alloc_total_blocks")


async def test_the_log_probability_is_a_falling_sum(leaf: Any) -> None:
    responses = await leaf.all(
        text_input=leaf.prompt(FRANCE), streaming=True, sampling_param_max_tokens=6, return_cumulative_logprob=True
    )

    sums = [each.number("cumulative_logprob") for each in responses]
    assert sums == sorted(sums, reverse=True)
    assert sums[-1] < 0


async def test_a_late_joiners_first_token_comes_before_the_earlier_requests_end(leaf: Any) -> None:
    events: list[str] = []

    async def run(name: str, tokens: int) -> None:
        async for each in leaf.stream(text_input=leaf.prompt(LONG), streaming=True, sampling_param_max_tokens=tokens):
            events.append(f"{name} end" if each.final else name)
            if events == ["early"]:
                joiner.append(asyncio.create_task(run("late", 4)))

    joiner: list[asyncio.Task[None]] = []
    await run("early", 80)
    await asyncio.gather(*joiner)

    assert events.index("late") < events.index("early end")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"sampling_param_temperature": -1.0}, "temperature must be at least 0"),
        ({"sampling_param_best_of": 2}, "best_of"),
        ({"sampling_param_max_tokens": 0}, "max_tokens must be at least 1"),
        ({"sampling_param_stop": [""]}, "stop must be without empty strings"),
        ({"text_input": ""}, "text_input is empty"),
        ({"text_input": "word " * 2000}, "exceeds the available context size"),
        ({"text_input": b"\xff\xfe"}, "not UTF-8"),
        ({"lora_path": "/etc/passwd"}, "lora_path is not available"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_wrong_request_is_an_error_and_hurts_nobody(leaf: Any, asked: dict[str, Any], message: str) -> None:
    responses = await leaf.all(**({"text_input": "hi", "streaming": True} | asked))

    assert [each.error for each in responses] == [responses[0].error]
    assert responses[0].error.startswith(ERROR_PREFIX)
    assert message in responses[0].error
    assert await leaf.answer("Hi", sampling_param_max_tokens=2)


async def test_a_nul_in_the_prompt_is_served(leaf: Any) -> None:
    (only,) = await leaf.all(text_input="a\0b", sampling_param_max_tokens=2)

    assert only.error is None


async def test_hanging_up_frees_the_slot_and_the_live_kv(leaf: Any) -> None:
    async with aclosing(
        leaf.stream(text_input=leaf.prompt(LONG), streaming=True, sampling_param_max_tokens=900)
    ) as stream:
        await anext(stream)
        await leaf.until(lambda load: load.active_requests == 1 and load.live_kv_tokens > 0)

    # One page of metrics may show one gauge of before and one of after: each is waited for.
    rest = await leaf.until(lambda load: load.active_requests == 0 and load.live_kv_tokens == 0)

    assert rest.cached_kv_tokens > 0


async def test_requests_beyond_the_slots_wait_leave_and_are_refused(leaf: Any) -> None:
    async def hold(position: int) -> None:
        await leaf.all(text_input=leaf.prompt(f"{LONG} {position}"), streaming=True, sampling_param_max_tokens=900)

    holders = [asyncio.create_task(hold(n)) for n in range(6)]
    await leaf.until(lambda load: (load.active_requests, load.waiting_requests) == (4, 2))
    (refused,) = await leaf.all(text_input="one more")
    assert refused.error == f"{ERROR_PREFIX}2 requests already wait for one of 4 slots"

    for holder in reversed(holders):
        holder.cancel()

    await leaf.until(lambda load: load.active_requests + load.waiting_requests == 0)
    assert await leaf.answer("Hi", sampling_param_max_tokens=2)


async def test_a_stop_request_ends_the_one_that_has_its_id(leaf: Any) -> None:
    victim = leaf.all("the-id", text_input=leaf.prompt(LONG), streaming=True, sampling_param_max_tokens=900)
    running = asyncio.create_task(victim)
    await leaf.until(lambda load: load.active_requests == 1)

    stopper = await leaf.all("the-id", text_input="", stop=True)

    assert [each.error for each in stopper] == [CANCELLED]
    assert (await running)[-1].error == CANCELLED


async def test_a_stop_request_needs_an_id(leaf: Any) -> None:
    assert [each.error for each in await leaf.all(text_input="", stop=True)] == [STOP_NEEDS_ID]


async def test_http_generate_answers_too(leaf: Any) -> None:
    url = f"http://{leaf.server.addresses.http}/v2/models/tensorrt_llm/generate"
    body = json.dumps({"text_input": "Hi", "sampling_param_max_tokens": 3}).encode()

    with await asyncio.to_thread(urllib.request.urlopen, url, body, 60) as reply:
        assert json.load(reply)["text_output"].startswith("Hi")
