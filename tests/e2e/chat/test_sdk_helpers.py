"""The openai SDK's own helpers, unmodified: event streams, parsed answers, loops of tools, raw and streamed responses.

Each runs against the leaf (`chat`) and against an engine with grammars (`chat_json`), as far as both can do it.
"""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import openai
import pytest
from openai import pydantic_function_tool
from openai.types.chat import ChatCompletion, ParsedChatCompletion
from pydantic import BaseModel, Field

pytestmark = pytest.mark.e2e

STORY: Any = [{"role": "user", "content": "Write a long story about a dragon who learns to read."}]
FRANCE: Any = [{"role": "user", "content": "What is the capital of France?"}]
"""Answered in a sentence: the helpers raise an error for an answer that its bound cuts."""
WEATHER: Any = [{"role": "user", "content": "What is the weather in Paris, in celsius?"}]
REVIEW: Any = [{"role": "user", "content": "The food was cold and the waiter rude. Judge this review."}]


class Review(BaseModel):
    """A judgement with few forms, so that a small model cannot talk for ever."""

    mood: Literal["good", "bad"]
    stars: int = Field(ge=1, le=5)
    tags: list[Literal["food", "service", "price"]] = Field(max_length=3)


class GetWeather(BaseModel):
    """The weather in a city."""

    city: Literal["Paris", "London", "Rome"]
    unit: Literal["celsius", "fahrenheit"]


class GetTime(BaseModel):
    """The local time in a city."""

    city: Literal["Paris", "London", "Rome"]


TOOLS: Any = [pydantic_function_tool(GetWeather), pydantic_function_tool(GetTime)]
CALLED: dict[str, type[BaseModel]] = {"GetWeather": GetWeather, "GetTime": GetTime}


@dataclass(frozen=True)
class Target:
    """A model and the address that serves it."""

    url: str
    model: str


@pytest.fixture
def leaf(request: pytest.FixtureRequest) -> Target:
    return Target(f"{request.getfixturevalue('platform').url}/v1", "chat")


@pytest.fixture
def engine_model(request: pytest.FixtureRequest) -> Target:
    router = request.getfixturevalue("upstream_router")
    return Target(f"{router.url}/v1", router.model)


@pytest.fixture(params=["leaf", "engine_model"])
def target(request: pytest.FixtureRequest) -> Target:
    """Each of both in turn."""
    target: Target = request.getfixturevalue(request.param)
    return target


@pytest.fixture
def client(target: Target) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=target.url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
async def async_client(target: Target) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=target.url, api_key="none", max_retries=0) as client:
        yield client


only_the_engine = pytest.mark.parametrize("target", ["engine_model"], indirect=True)
only_the_leaf = pytest.mark.parametrize("target", ["leaf"], indirect=True)


def asked(target: Target, messages: Any, **more: Any) -> dict[str, Any]:
    """A greedy request; the SDK's arguments are checked by their names."""
    return {"model": target.model, "messages": messages, "temperature": 0, "max_tokens": 64, **more}


def parsed_call(completion: ParsedChatCompletion[Any]) -> tuple[str, BaseModel, Any]:
    """The first call of an answer: name, parsed arguments, and the call itself."""
    assert completion.choices[0].finish_reason == "tool_calls"
    call = (completion.choices[0].message.tool_calls or [])[0]
    arguments = call.function.parsed_arguments
    assert isinstance(arguments, CALLED[call.function.name])
    return call.function.name, arguments, call


def test_the_stream_helper_tells_deltas_and_the_whole(target, client) -> None:
    options = {"stream_options": {"include_usage": True}}
    with client.chat.completions.stream(**asked(target, FRANCE, **options)) as stream:
        events = list(stream)
        final = stream.get_final_completion()
    deltas = [event.delta for event in events if event.type == "content.delta"]
    (done,) = [event.content for event in events if event.type == "content.done"]
    assert "".join(deltas) == done == final.choices[0].message.content
    assert final.choices[0].finish_reason == "stop"
    assert final.choices[0].message.role == "assistant"
    assert final.usage is not None
    assert final.usage.completion_tokens > 1


async def test_the_async_stream_helper_says_what_the_whole_answer_says(target, async_client) -> None:
    request = asked(target, FRANCE)
    whole = await async_client.chat.completions.create(**request)
    async with async_client.chat.completions.stream(**request) as stream:
        async for _ in stream:
            pass
        final = await stream.get_final_completion()
    assert final.choices[0].message.content == whole.choices[0].message.content


def test_a_stream_of_two_choices_is_told_apart(target, client) -> None:
    with client.chat.completions.stream(**asked(target, FRANCE, n=2)) as stream:
        final = stream.get_final_completion()
    assert [choice.index for choice in final.choices] == [0, 1]
    assert all("Paris" in (choice.message.content or "") for choice in final.choices)


def test_leaving_the_stream_helper_early_is_no_error(target, client) -> None:
    with client.chat.completions.stream(**asked(target, STORY)) as stream:
        first = next(event for event in stream if event.type == "content.delta" and event.delta)
    assert first.snapshot == first.delta


def test_a_raw_response_has_headers_and_parses(target, client) -> None:
    raw = client.chat.completions.with_raw_response.create(**asked(target, STORY, max_tokens=2))
    assert raw.headers["x-zooserve-model"] == target.model
    assert raw.request_id
    answer = raw.parse()
    assert isinstance(answer, ChatCompletion)
    assert answer.choices[0].message.content


async def test_an_async_raw_response_parses_too(target, async_client) -> None:
    raw = await async_client.chat.completions.with_raw_response.create(**asked(target, STORY, max_tokens=2))
    assert raw.parse().choices[0].message.content


def test_a_raw_stream_can_be_read_as_chunks(target, client) -> None:
    raw = client.chat.completions.with_raw_response.create(**asked(target, STORY, max_tokens=4), stream=True)
    chunks = list(raw.parse())
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def test_a_streamed_response_is_read_line_by_line(target, client) -> None:
    streamed = client.chat.completions.with_streaming_response
    with streamed.create(**asked(target, STORY, max_tokens=4), stream=True) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in response.iter_lines() if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"


async def test_an_async_streamed_response_parses_when_asked_to(target, async_client) -> None:
    streamed = async_client.chat.completions.with_streaming_response
    async with streamed.create(**asked(target, STORY, max_tokens=4)) as response:
        answer = await response.parse()
    assert answer.choices[0].finish_reason == "length"


def test_models_are_listed_page_by_page_and_found_by_name(target, client) -> None:
    names = [model.id for model in client.models.list()]
    assert target.model in names
    assert client.models.retrieve(target.model).id == target.model


async def test_models_are_listed_by_the_async_client(target, async_client) -> None:
    assert target.model in [model.id async for model in async_client.models.list()]


@only_the_engine
def test_an_answer_is_parsed_into_a_pydantic_model(target, client) -> None:
    answer = client.chat.completions.parse(**asked(target, REVIEW), response_format=Review)
    assert isinstance(answer.choices[0].message.parsed, Review)
    assert answer.choices[0].message.refusal is None


@only_the_engine
async def test_an_answer_is_parsed_by_the_async_client(target, async_client) -> None:
    answer = await async_client.chat.completions.parse(**asked(target, REVIEW), response_format=Review)
    assert isinstance(answer.choices[0].message.parsed, Review)


@only_the_engine
def test_a_streamed_answer_is_parsed_at_its_end(target, client) -> None:
    with client.chat.completions.stream(**asked(target, REVIEW), response_format=Review) as stream:
        (done,) = [event for event in stream if event.type == "content.done"]
        final = stream.get_final_completion()
    assert isinstance(done.parsed, Review)
    assert final.choices[0].message.parsed == done.parsed


@only_the_engine
def test_a_parsed_answer_that_is_cut_short_raises_the_sdks_own_error(target, client) -> None:
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(**asked(target, REVIEW, max_tokens=3), response_format=Review)


@only_the_engine
@pytest.mark.parametrize(
    "choice",
    ["required", {"type": "function", "function": {"name": "GetWeather"}}],
    ids=["required", "named"],
)
def test_a_forced_call_comes_with_parsed_arguments(target, client, choice) -> None:
    answer = client.chat.completions.parse(**asked(target, WEATHER), tools=TOOLS, tool_choice=choice)
    name, _, call = parsed_call(answer)
    assert call.id
    assert name == "GetWeather" or choice == "required"


@only_the_engine
async def test_a_forced_call_is_parsed_by_the_async_client(target, async_client) -> None:
    answer = await async_client.chat.completions.parse(**asked(target, WEATHER), tools=TOOLS, tool_choice="required")
    parsed_call(answer)


@only_the_engine
def test_left_to_itself_the_model_answers_or_calls(target, client) -> None:
    answer = client.chat.completions.parse(**asked(target, WEATHER), tools=TOOLS, tool_choice="auto")
    if answer.choices[0].message.tool_calls:
        parsed_call(answer)
    else:
        assert answer.choices[0].message.content


@only_the_engine
def test_no_more_than_one_call_comes_where_they_may_not_be_parallel(target, client) -> None:
    answer = client.chat.completions.parse(
        **asked(target, WEATHER), tools=TOOLS, tool_choice="required", parallel_tool_calls=False
    )
    assert len(answer.choices[0].message.tool_calls or []) == 1


@only_the_engine
def test_no_call_comes_where_none_is_wanted(target, client) -> None:
    answer = client.chat.completions.parse(**asked(target, WEATHER), tools=TOOLS, tool_choice="none")
    assert not answer.choices[0].message.tool_calls
    assert answer.choices[0].message.content


@only_the_engine
def test_streamed_arguments_join_to_the_parsed_ones(target, client) -> None:
    request = asked(target, WEATHER, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
    with client.chat.completions.stream(**request) as stream:
        events = list(stream)
        final = stream.get_final_completion()
    deltas = [event for event in events if event.type == "tool_calls.function.arguments.delta"]
    (done,) = [event for event in events if event.type == "tool_calls.function.arguments.done"]
    assert "".join(delta.arguments_delta for delta in deltas) == done.arguments
    assert len(deltas) > 1
    assert isinstance(done.parsed_arguments, CALLED[done.name])
    assert parsed_call(final)[1] == done.parsed_arguments


def parsed(client: openai.OpenAI, request: dict[str, Any]) -> ParsedChatCompletion[Any]:
    return client.chat.completions.parse(**request)


def streamed(client: openai.OpenAI, request: dict[str, Any]) -> ParsedChatCompletion[Any]:
    with client.chat.completions.stream(**request) as stream:
        return stream.get_final_completion()


@only_the_engine
@pytest.mark.parametrize("called_by", [parsed, streamed], ids=["parsed", "streamed"])
def test_a_loop_of_tools_ends_in_an_answer(target, client, called_by) -> None:
    """Call, result, answer, with the SDK's own message sent back as it came."""
    messages = list(WEATHER)
    called = called_by(client, asked(target, messages, tools=TOOLS, tool_choice="required"))
    message = called.choices[0].message
    messages.append(message)
    for call in message.tool_calls or ():
        assert isinstance(call.function.parsed_arguments, CALLED[call.function.name])
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "It is 21 degrees and sunny."})
    answer = client.chat.completions.create(**asked(target, messages), tools=TOOLS, tool_choice="none")
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason in ("stop", "length")


@only_the_leaf
@pytest.mark.parametrize(
    ("more", "param"),
    [({"response_format": Review}, "response_format"), ({"tools": TOOLS}, "tools")],
    ids=["response_format", "tools"],
)
def test_what_the_leaf_cannot_enforce_is_refused_by_name(target, client, more, param) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.parse(**asked(target, REVIEW), **more)
    assert (refused.value.code, refused.value.param) == ("unsupported_parameter", param)
