"""The openai SDK, unmodified, against the running platform."""

import asyncio
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest

from zooserve.leaf.metrics import LeafLoad, load_in

pytestmark = pytest.mark.e2e

FRANCE: Any = [{"role": "user", "content": "What is the capital of France?"}]
LONG, SHORT = 500, 40
STORY: Any = {
    "model": "chat",
    "messages": [{"role": "user", "content": "Write a long story about a dragon who learns to read."}],
    "max_tokens": LONG,
    "temperature": 0,
}
"""Goes on to its bound."""
COUNT: Any = [{"role": "user", "content": "Count from one to twenty in words, separated by commas."}]


@pytest.fixture
def client(platform) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{platform.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
async def async_client(platform) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{platform.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def load_of(platform) -> LeafLoad:
    with urllib.request.urlopen(f"http://{platform.leaf_metrics}/metrics") as page:
        return load_in(page.read().decode())


def load_at_rest(platform) -> LeafLoad:
    """What the leaf says once it has nothing to do: the test's own timeout bounds it."""
    while (load := load_of(platform)).active_requests + load.waiting_requests:
        time.sleep(0.05)  # the metric itself is sampled four times a second
    return load


@contextmanager
def broken_off(platform) -> Iterator[None]:
    """The block's story begins in the leaf and does not get to its end there."""
    before = load_at_rest(platform).generated_tokens
    yield
    while load_of(platform).generated_tokens == before:
        time.sleep(0.05)
    assert load_at_rest(platform).generated_tokens - before < LONG


def test_a_chat_is_answered(client) -> None:
    answer = client.chat.completions.create(model="chat", messages=FRANCE, temperature=0, max_tokens=24)
    assert "Paris" in (answer.choices[0].message.content or "")
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == "chat"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert 0 < answer.usage.completion_tokens <= 24


def test_the_raw_answer_says_what_ran(client) -> None:
    raw = client.chat.completions.with_raw_response.create(model="chat@1", messages=FRANCE, max_tokens=2)
    assert raw.headers["x-zooserve-model"] == "chat"
    assert raw.headers["x-zooserve-version"] == "1"
    assert raw.headers["x-request-id"]


async def test_a_stream_says_the_same_as_the_whole_answer_and_ends_with_its_usage(async_client) -> None:
    asked: dict[str, Any] = {"model": "chat", "messages": FRANCE, "temperature": 0, "max_tokens": 24}
    whole = await async_client.chat.completions.create(**asked)
    stream = await async_client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["stop"]
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[-1].usage == whole.usage


async def test_greedy_answers_repeat_alone_and_beside_others(async_client) -> None:
    async def ask() -> str | None:
        answer = await async_client.chat.completions.create(model="chat", messages=FRANCE, temperature=0, max_tokens=16)
        return answer.choices[0].message.content

    alone = await ask()
    assert set(await asyncio.gather(*(ask() for _ in range(6)))) == {alone}


def test_a_seed_repeats_an_answer_and_another_one_does_not(client) -> None:
    def ask(seed: int) -> str | None:
        answer = client.chat.completions.create(**STORY | {"temperature": 1, "seed": seed, "max_tokens": 24})
        return answer.choices[0].message.content

    assert ask(7) == ask(7)
    assert ask(7) != ask(8)


def test_a_stop_string_ends_the_answer_and_is_not_in_it(client) -> None:
    asked: dict[str, Any] = {"model": "chat", "messages": FRANCE, "temperature": 0, "max_tokens": 24}
    whole = client.chat.completions.create(**asked).choices[0].message.content or ""
    middle = len(whole) // 2
    stop = whole[middle : middle + 5]
    answer = client.chat.completions.create(**asked, stop=[stop, "never"])
    assert answer.choices[0].message.content == whole[: whole.index(stop)]
    assert answer.choices[0].finish_reason == "stop"
    pieces = [
        chunk.choices[0].delta.content or ""
        for chunk in client.chat.completions.create(**asked, stop=stop, stream=True)
    ]
    assert "".join(pieces) == whole[: whole.index(stop)]


def test_an_answer_cut_by_max_tokens_says_so_and_counts_them(client) -> None:
    answer = client.chat.completions.create(**STORY | {"max_tokens": 9})
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 9


def test_several_choices_come_each_with_its_index(client) -> None:
    answer = client.chat.completions.create(**STORY | {"temperature": 1, "n": 3, "max_tokens": 8})
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in answer.choices}) > 1


def test_bad_requests_raise_with_param_and_code(client) -> None:
    with pytest.raises(openai.BadRequestError) as negative:
        client.chat.completions.create(model="chat", messages=FRANCE, max_tokens=-1)
    assert negative.value.param == "max_tokens"
    with pytest.raises(openai.BadRequestError) as tools:
        client.chat.completions.create(
            model="chat", messages=FRANCE, tools=[{"type": "function", "function": {"name": "f"}}]
        )
    assert (tools.value.param, tools.value.code) == ("tools", "unsupported_parameter")
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(model="chat", messages=[{"role": "user", "content": "word " * 3000}])
    assert long.value.code == "context_length_exceeded"
    assert long.value.type == "invalid_request_error"
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="chatt", messages=FRANCE)
    assert unknown.value.code == "model_not_found"


def test_a_prompt_and_answer_that_just_fit_are_answered(client) -> None:
    """The whole context can be used: the counts here are the counts of the engine."""
    answer = client.completions.create(model="chat", prompt=" a" * 2040, max_tokens=8, temperature=0)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 2040
    assert answer.choices[0].finish_reason in ("length", "stop")


def test_the_story_that_others_break_off_goes_on_to_its_bound(client) -> None:
    answer = client.chat.completions.create(**STORY)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == LONG


def test_closing_a_stream_in_the_middle_frees_the_leaf(platform, client) -> None:
    with broken_off(platform), client.chat.completions.create(**STORY, stream=True) as stream:
        for _, _chunk in zip(range(4), stream, strict=False):
            pass


async def test_leaving_before_the_answer_frees_the_leaf(platform, async_client) -> None:
    with broken_off(platform):
        asking = asyncio.create_task(async_client.chat.completions.create(**STORY))
        while (await asyncio.to_thread(load_of, platform)).active_requests == 0:  # noqa: ASYNC110 - a page has no event
            await asyncio.sleep(0.02)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking


@pytest.fixture
def short_of_it(client, duration_ms) -> str:
    """As many milliseconds as the story's beginning takes."""
    return duration_ms(lambda: client.chat.completions.create(**STORY | {"max_tokens": SHORT}))


def test_a_timeout_of_the_client_ends_the_work_too(platform, client, short_of_it) -> None:
    impatient = client.with_options(timeout=float(short_of_it) / 1000)
    with broken_off(platform), pytest.raises((openai.APITimeoutError, openai.InternalServerError)):
        impatient.chat.completions.create(**STORY)


def test_a_deadline_is_504_and_ends_the_work(platform, client, short_of_it) -> None:
    with broken_off(platform), pytest.raises(openai.InternalServerError) as late:
        client.chat.completions.create(**STORY, extra_headers={"x-request-timeout-ms": short_of_it})
    assert late.value.status_code == 504
    assert late.value.code == "deadline_exceeded"


def test_a_deadline_in_a_stream_raises_from_it(platform, client, short_of_it) -> None:
    with broken_off(platform), pytest.raises(openai.APIError, match="time budget"):
        for _ in client.chat.completions.create(
            **STORY, stream=True, extra_headers={"x-request-timeout-ms": short_of_it}
        ):
            pass


def test_completions_take_prompts_and_token_ids(client) -> None:
    whole = client.completions.create(
        model="chat", prompt=["The capital of France is", "One, two, three,"], max_tokens=6, temperature=0
    )
    assert "Paris" in whole.choices[0].text
    assert "four" in whole.choices[1].text
    ids = client.completions.create(model="chat", prompt=[28120], max_tokens=4, temperature=0, echo=True)
    assert ids.choices[0].text.startswith("hello")
    assert ids.usage is not None
    assert ids.usage.prompt_tokens == 1


def test_streamed_completions_join_to_the_whole_text(client) -> None:
    asked: dict[str, Any] = {"model": "chat", "prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}
    whole = client.completions.create(**asked).choices[0].text
    chunks = list(client.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == whole
    assert chunks[-1].usage.completion_tokens == 12


async def test_many_streams_at_once_all_end_well(async_client) -> None:
    async def ask(number: int) -> str | None:
        stream = await async_client.chat.completions.create(
            model="chat", messages=COUNT, max_tokens=8, seed=number, stream=True
        )
        return [chunk async for chunk in stream][-1].choices[0].finish_reason

    assert set(await asyncio.gather(*(ask(number) for number in range(24)))) <= {"stop", "length"}
