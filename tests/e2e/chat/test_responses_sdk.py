"""`client.responses` of the openai SDK, unmodified, against the engine: text, streams, parsed forms and tool loops."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from pydantic import BaseModel

pytestmark = pytest.mark.e2e

FRANCE = "What is the capital of France?"
LONG, SHORT = 500, 40
STORY: Any = {
    "model": "chat_json",
    "input": "Tell a very long story of a dragon.",
    "max_output_tokens": LONG,
    "temperature": 0,
}
"""Goes on to its bound."""


class City(BaseModel):
    """What a parsed answer is to be."""

    name: str
    country: str


class Weather(BaseModel):
    """The weather in a city."""

    city: str


@pytest.fixture
def client(upstream_router) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{upstream_router.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@contextmanager
def broken_off(engine) -> Iterator[None]:
    """The block's story does not get to its end in the engine, which comes to rest: the test's timeout bounds it."""
    before = engine.metric("tokens_predicted_total")
    yield
    while engine.busy_slots():
        time.sleep(0.05)
    assert engine.metric("tokens_predicted_total") - before < LONG


def test_a_response_is_answered(client) -> None:
    response = client.responses.create(model="chat_json", input=FRANCE, temperature=0, max_output_tokens=32)
    assert "Paris" in response.output_text
    assert response.status == "completed"
    assert response.to_dict()["store"] is False
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens


def test_a_stream_says_the_same_as_the_whole_response(client) -> None:
    asked: dict[str, Any] = {"model": "chat_json", "input": FRANCE, "temperature": 0, "max_output_tokens": 32}
    whole = client.responses.create(**asked)
    events = list(client.responses.create(**asked, stream=True))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].type == "response.completed"
    assert events[-1].response.output_text == whole.output_text


def test_the_streaming_helper_has_snapshots_and_the_final_response(client) -> None:
    with client.responses.stream(model="chat_json", input=FRANCE, temperature=0, max_output_tokens=32) as stream:
        snapshots = [event.snapshot for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert len(snapshots) > 1
    assert snapshots[-1] == final.output_text


def test_an_answer_cut_by_its_bound_is_incomplete(client) -> None:
    response = client.responses.create(model="chat_json", input="Tell a long story.", max_output_tokens=8)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.usage is not None
    assert response.usage.output_tokens == 8


def test_an_answer_is_parsed_into_its_form(client) -> None:
    response = client.responses.parse(model="chat_json", input=FRANCE, text_format=City, max_output_tokens=200)
    assert isinstance(response.output_parsed, City)


def test_a_streamed_answer_is_parsed_into_its_form(client) -> None:
    with client.responses.stream(model="chat_json", input=FRANCE, text_format=City, max_output_tokens=200) as stream:
        done = [event for event in stream if event.type == "response.output_text.done"]
        final = stream.get_final_response()
    assert isinstance(done[0].parsed, City)
    assert final.output_parsed == done[0].parsed


def test_any_json_is_an_object(client) -> None:
    response = client.responses.create(
        model="chat_json",
        input="Describe Paris in JSON.",
        text={"format": {"type": "json_object"}},
        max_output_tokens=400,
        temperature=0,
    )
    assert response.status != "completed" or isinstance(json.loads(response.output_text), dict)


def test_a_tool_loop_runs_to_its_answer(client) -> None:
    tool: Any = openai.pydantic_function_tool(Weather, name="weather")["function"]
    tools: Any = [{"type": "function", **tool}]
    history: list[Any] = [{"role": "user", "content": "What is the weather in Bern?"}]
    asking = client.responses.create(
        model="chat_json", input=history, tools=tools, tool_choice="required", temperature=0, max_output_tokens=200
    )
    calls = [item for item in asking.output if item.type == "function_call"]
    assert calls
    assert all(isinstance(Weather.model_validate_json(call.arguments).city, str) for call in calls)
    history += asking.output
    history += [
        {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny, 21 degrees."} for call in calls
    ]
    answer = client.responses.create(
        model="chat_json", input=history, tools=tools, tool_choice="none", temperature=0, max_output_tokens=64
    )
    assert answer.output_text
    assert not [item for item in answer.output if item.type == "function_call"]


def test_a_streamed_call_is_told_in_pieces_and_parsed(client) -> None:
    tool: Any = openai.pydantic_function_tool(Weather, name="weather")["function"]
    with client.responses.stream(
        model="chat_json",
        input="What is the weather in Bern?",
        tools=[{"type": "function", **tool}],
        tool_choice={"type": "function", "name": "weather"},
        max_output_tokens=200,
    ) as stream:
        events = list(stream)
        final = stream.get_final_response()
    (call,) = [item for item in final.output if item.type == "function_call"]
    deltas = [event for event in events if event.type == "response.function_call_arguments.delta"]
    assert deltas[-1].snapshot == call.arguments
    assert "city" in call.parsed_arguments


def test_logprobs_come_with_the_text_where_they_are_included(client) -> None:
    response = client.responses.create(
        model="chat_json",
        input=FRANCE,
        include=["message.output_text.logprobs"],
        top_logprobs=2,
        max_output_tokens=8,
    )
    (part,) = response.output[0].content
    assert part.logprobs
    assert all(len(token.top_logprobs) == 2 for token in part.logprobs)


def test_bad_requests_raise_with_param_and_code(client) -> None:
    with pytest.raises(openai.BadRequestError) as earlier:
        client.responses.create(model="chat_json", input="Go on.", previous_response_id="resp_1")
    assert (earlier.value.param, earlier.value.code) == ("previous_response_id", "unsupported_parameter")
    with pytest.raises(openai.NotFoundError, match="no response is stored here"):
        client.responses.retrieve("resp_1")
    with pytest.raises(openai.BadRequestError) as hosted:
        client.responses.create(model="chat_json", input="Go on.", tools=[{"type": "web_search"}])
    assert hosted.value.param == "tools[0].type"


def test_the_story_that_others_break_off_goes_on_to_its_bound(client) -> None:
    response = client.responses.create(**STORY)
    assert response.usage is not None
    assert response.usage.output_tokens == LONG


def test_a_deadline_in_a_stream_raises_from_it_and_frees_the_engine(client, upstream_router, duration_ms) -> None:
    short_of_it = duration_ms(lambda: client.responses.create(**STORY | {"max_output_tokens": SHORT}))
    with broken_off(upstream_router.engine), pytest.raises(openai.APIError, match="time budget"):
        for _ in client.responses.create(**STORY, stream=True, extra_headers={"x-request-timeout-ms": short_of_it}):
            pass


def test_closing_a_stream_in_the_middle_frees_the_engine(client, upstream_router) -> None:
    with broken_off(upstream_router.engine), client.responses.create(**STORY, stream=True) as stream:
        next(event for event in stream if event.type == "response.output_text.delta")
