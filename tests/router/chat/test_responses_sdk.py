"""The helpers of the openai SDK, unmodified, over a scripted backend: what they demand of the events' order and ids."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import openai
import pytest
from pydantic import BaseModel

from zooserve.errors import BackendFailed
from zooserve_router.chat.generation import Piece, ToolCallPart

WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


class City(BaseModel):
    """What a parsed answer is to be."""

    name: str


@pytest.fixture
async def client(many) -> AsyncIterator[openai.AsyncOpenAI]:
    transport = httpx2.AsyncClient(transport=httpx2.ASGITransport(many.app), base_url="http://router/v1")
    async with openai.AsyncOpenAI(
        base_url="http://router/v1", api_key="none", max_retries=0, http_client=transport
    ) as client:
        yield client


async def test_a_form_is_parsed_whole_and_from_its_stream(many, client, pieces) -> None:
    many.leaf.script = pieces(['{"na', 'me":"Be', 'rn"}'])
    whole = await client.responses.parse(model="remote", input="Hi", text_format=City)
    assert whole.output_parsed == City(name="Bern")
    async with client.responses.stream(model="remote", input="Hi", text_format=City) as stream:
        events = [event async for event in stream]
        final = await stream.get_final_response()
    snapshots = [event.snapshot for event in events if event.type == "response.output_text.delta"]
    assert snapshots == ['{"na', '{"name":"Be', '{"name":"Bern"}']
    assert final.output_parsed == City(name="Bern")


async def test_calls_are_followed_by_their_snapshots_and_parsed(many, client) -> None:
    many.leaf.script = [
        Piece("Let me see."),
        Piece(tool_calls=(ToolCallPart(0, '{"city":', "call_a", "weather"),)),
        Piece(tool_calls=(ToolCallPart(0, '"Bern"}'), ToolCallPart(1, '{"city":"Rome"}', "call_b", "weather"))),
        Piece("", "tool_calls"),
    ]
    async with client.responses.stream(model="remote", input="Weather?", tools=[WEATHER]) as stream:
        events = [event async for event in stream]
        final = await stream.get_final_response()
    snapshots = [event.snapshot for event in events if event.type == "response.function_call_arguments.delta"]
    assert snapshots == ['{"city":', '{"city":"Bern"}', '{"city":"Rome"}']
    calls = [item for item in final.output if item.type == "function_call"]
    assert [call.parsed_arguments for call in calls] == [{"city": "Bern"}, {"city": "Rome"}]
    outputs: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "sunny"} for call in calls]
    many.leaf.script = [Piece("Sunny.", "stop")]
    history: Any = [{"role": "user", "content": "Weather?"}, *final.output, *outputs]
    answer = await client.responses.create(model="remote", input=history, tools=[WEATHER])
    assert answer.output_text == "Sunny."
    assert [message["role"] for message in many.leaf.asked[-1].messages][-4:] == ["user", "assistant", "tool", "tool"]


async def test_a_failure_in_a_stream_raises_with_its_message_and_code(many, client) -> None:
    many.leaf.script = [Piece("Hel"), BackendFailed("broken")]
    with pytest.raises(openai.APIError, match="broken") as raised:
        async with client.responses.stream(model="remote", input="Hi") as stream:
            await stream.until_done()
    assert raised.value.code == "backend_failed"


async def test_an_answer_that_was_cut_ends_its_stream_as_incomplete(many, client, pieces) -> None:
    many.leaf.script = pieces(["Hel"], "length")
    async with client.responses.stream(model="remote", input="Hi") as stream:
        events = [event async for event in stream]
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.output_text == "Hel"
