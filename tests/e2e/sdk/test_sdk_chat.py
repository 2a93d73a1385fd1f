"""Chats against a running platform: whole and streamed answers agree, and whoever leaves takes the generation along."""

import asyncio
import re
import time
from collections.abc import Iterator
from typing import Any, cast

import httpx
import pytest

from zooserve import AsyncZoo, Zoo, errors
from zooserve.sdk.chat_fields import ChatFields

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

PATIENCE_S = 240
LONG = "Once upon a time, in a land far away,"
LONGEST_TOKENS = 600


@pytest.fixture
def zoo(platform: Any) -> Iterator[Zoo]:
    """A client that waits as long as a slow machine needs."""
    with Zoo(platform.url, timeout_s=PATIENCE_S) as client:
        yield client


def counted(platform: Any, name: str, **labels: str) -> float:
    """The sum of a metric's series of `chat` with these labels."""
    page = httpx.get(f"{platform.url}/metrics", timeout=30).text
    wanted = {'model="chat"', *(f'{label}="{value}"' for label, value in labels.items())}
    series = re.findall(rf"^{name}\{{(.*)\}} (\S+)$", page, re.MULTILINE)
    return sum(float(value) for told, value in series if wanted <= set(told.split(",")))


def at_rest(platform: Any) -> bool:
    """Whether every choice that was issued has ended, and no room is held."""
    issued = counted(platform, "zooserve_chat_choices_issued_total")
    ended = counted(platform, "zooserve_chat_choices_ended_total")
    return issued == ended and not counted(platform, "zooserve_chat_held_tokens")


def wait_for_rest(platform: Any) -> None:
    """Until nothing is generated any more."""
    end = time.monotonic() + PATIENCE_S
    while not at_rest(platform):
        assert time.monotonic() < end, "a generation goes on"
        time.sleep(0.1)


def test_streamed_and_whole_answers_agree(zoo: Zoo) -> None:
    asked: ChatFields = {"max_tokens": 24, "temperature": 0}
    whole = zoo.chat("What is the capital of France?", **asked)
    with zoo.chat_stream("What is the capital of France?", **asked) as stream:
        pieces = list(stream)
    assert len(pieces) > 1
    assert "".join(pieces) == stream.answer.text == whole.text
    assert stream.answer.usage == whole.usage
    assert (stream.answer.model, stream.answer.version) == (whole.model, whole.version) == ("chat", "1")
    assert stream.answer.request_id != whole.request_id
    assert "Paris" in whole.text


def test_completions_stream_too_and_a_pin_holds(zoo: Zoo) -> None:
    whole = zoo.complete([LONG, "One, two,"], model="chat@1", max_tokens=6, temperature=0)
    assert [choice.finish_reason for choice in whole.choices] == ["length", "length"]
    with zoo.complete_stream([LONG, "One, two,"], model="chat@1", max_tokens=6, temperature=0) as stream:
        told = list(stream.events())
    assert stream.answer.choices == whole.choices
    assert told[-1]["usage"]["completion_tokens"] == 12
    with pytest.raises(errors.ModelNotFound):
        zoo.complete(LONG, model="chat@7")


def test_what_the_backend_lacks_is_said_and_nothing_is_generated(zoo: Zoo) -> None:
    with pytest.raises(errors.Unsupported) as caught, zoo.chat_stream("Hello!", logprobs=True):
        pass
    assert (caught.value.param, caught.value.status) == ("logprobs", 400)
    with pytest.raises(errors.BadInput, match="max_token"):
        zoo.chat("Hello!", **cast("Any", {"max_token": 4}))


def written(platform: Any) -> float:
    """Tokens that the model has written."""
    return counted(platform, "zooserve_tokens_total", direction="output")


async def test_leaving_the_block_ends_the_generation_long_before_its_end(platform: Any) -> None:
    wait_for_rest(platform)
    before, cancelled = written(platform), counted(platform, "zooserve_chat_choices_ended_total", outcome="cancelled")
    async with AsyncZoo(platform.url, timeout_s=PATIENCE_S) as zoo:
        async with zoo.complete_stream(LONG, max_tokens=LONGEST_TOKENS, temperature=0) as stream:
            async for _ in stream:
                if len(stream.text) > 10:
                    break
        await asyncio.to_thread(wait_for_rest, platform)
    assert counted(platform, "zooserve_chat_choices_ended_total", outcome="cancelled") == cancelled + 1
    left_after = written(platform) - before
    with Zoo(platform.url, timeout_s=PATIENCE_S) as zoo:
        whole = zoo.complete(LONG, max_tokens=LONGEST_TOKENS, temperature=0)
    assert left_after < whole.usage.completion_tokens / 2


def test_leaving_the_blocking_stream_does_so_too(platform: Any, zoo: Zoo) -> None:
    wait_for_rest(platform)
    cancelled = counted(platform, "zooserve_chat_choices_ended_total", outcome="cancelled")
    with zoo.complete_stream(LONG, max_tokens=LONGEST_TOKENS, temperature=0) as stream:
        assert next(stream)
    wait_for_rest(platform)
    assert counted(platform, "zooserve_chat_choices_ended_total", outcome="cancelled") == cancelled + 1
    assert zoo.chat("Hello!", max_tokens=4).usage.completion_tokens


async def test_a_cancelled_task_ends_its_generation(platform: Any) -> None:
    wait_for_rest(platform)
    cancelled = counted(platform, "zooserve_chat_choices_ended_total", outcome="cancelled")
    began = asyncio.Event()

    async def listen(zoo: AsyncZoo) -> None:
        async with zoo.complete_stream(LONG, max_tokens=LONGEST_TOKENS, temperature=0) as stream:
            async for _ in stream:
                began.set()

    async with AsyncZoo(platform.url, timeout_s=PATIENCE_S) as zoo:
        task = asyncio.create_task(listen(zoo))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(wait_for_rest, platform)
    assert counted(platform, "zooserve_chat_choices_ended_total", outcome="cancelled") == cancelled + 1
