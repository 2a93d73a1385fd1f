"""Functions, forms of answers and log-probabilities over /v1/responses, where a model's backend has them."""

import json
from typing import Any

import pytest
from openai.types.responses import Response

from zooserve.errors import BadInput
from zooserve_router.chat.generation import Constraint, Conversation, Piece, TokenLogprob, ToolCallPart, ToolChoice

CLOSED = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = {"type": "function", "name": "weather", "description": "Of a city.", "parameters": CLOSED, "strict": True}
NOW = {"type": "function", "name": "now"}
CALL = {"type": "function_call", "call_id": "call_a", "name": "weather", "arguments": '{"city":"Bern"}'}
OUTPUT = {"type": "function_call_output", "call_id": "call_a", "output": "sunny"}


async def ask(many, model: str = "remote", **fields: Any) -> Any:
    return await many.http.post("/v1/responses", json={"model": model, "input": "Hi", **fields})


def asked_of(many) -> Conversation:
    work = many.leaf.asked[-1]
    assert isinstance(work, Conversation)
    return work


async def test_tools_and_their_choice_reach_the_backend_and_are_repeated(many) -> None:
    choice = {"type": "function", "name": "weather"}
    answer = await ask(many, tools=[WEATHER, NOW], tool_choice=choice, parallel_tool_calls=False)
    wanted = asked_of(many)
    assert [(tool.name, tool.strict) for tool in wanted.tools] == [("weather", True), ("now", False)]
    assert wanted.tools[0].parameters == CLOSED
    assert wanted.tool_choice == ToolChoice("function", "weather")
    assert wanted.parallel_tool_calls is False
    body = answer.json()
    assert body["tools"][0] == WEATHER
    assert body["tool_choice"] == choice
    assert body["parallel_tool_calls"] is False
    Response.model_validate(body)


async def test_only_allowed_tools_are_shown_to_the_model_and_all_are_repeated(many) -> None:
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "now"}]}
    answer = await ask(many, tools=[WEATHER, NOW], tool_choice=choice)
    assert [tool.name for tool in asked_of(many).tools] == ["now"]
    assert asked_of(many).tool_choice == ToolChoice("required")
    assert [tool["name"] for tool in answer.json()["tools"]] == ["weather", "now"]


async def test_what_a_function_says_for_hosted_tools_may_be_empty(many) -> None:
    neutral = {"allowed_callers": None, "defer_loading": False, "output_schema": None}
    assert (await ask(many, tools=[{**WEATHER, **neutral}])).status_code == 200


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_call_is_an_item_that_can_be_sent_back_with_its_output(many, stream) -> None:
    many.leaf.script = [
        Piece(tool_calls=(ToolCallPart(0, id="call_a", name="weather"),)),
        Piece(tool_calls=(ToolCallPart(0, '{"city":'),)),
        Piece(tool_calls=(ToolCallPart(0, '"Bern"}'),)),
        Piece("", "tool_calls"),
    ]
    answer = await ask(many, tools=[WEATHER], stream=stream)
    body = json.loads(answer.text.split("data: ")[-1])["response"] if stream else answer.json()
    (call,) = body["output"]
    assert {name: call[name] for name in CALL} == CALL
    assert call["status"] == "completed"
    many.leaf.script = [Piece("Sunny.", "stop")]
    history = [{"role": "user", "content": "Weather?"}, call, OUTPUT]
    assert (await ask(many, input=history, tools=[WEATHER])).status_code == 200
    function = {"name": "weather", "arguments": '{"city":"Bern"}'}
    assert list(asked_of(many).messages)[-2:] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_a", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "call_a", "content": "sunny"},
    ]


@pytest.mark.parametrize(
    ("form", "constraint"),
    [
        ({"type": "json_object"}, Constraint()),
        (
            {"type": "json_schema", "name": "place", "schema": CLOSED, "strict": True, "description": "Where."},
            Constraint(CLOSED, "place", "Where.", strict=True),
        ),
    ],
    ids=["json_object", "json_schema"],
)
async def test_a_form_reaches_the_backend_and_is_repeated(many, form, constraint) -> None:
    answer = await ask(many, text={"format": form})
    assert asked_of(many).constraint == constraint
    assert answer.json()["text"]["format"] == form
    Response.model_validate(answer.json())


async def test_logprobs_come_where_they_are_included(many) -> None:
    token = TokenLogprob("Hi", -0.5, (("Hi", -0.5),))
    many.leaf.script = [Piece("Hi", "stop", logprobs=(token,))]
    answer = await ask(many, include=["message.output_text.logprobs"], top_logprobs=1)
    assert asked_of(many).sampling.logprobs == 1
    (told,) = answer.json()["output"][0]["content"][0]["logprobs"]
    assert (told["token"], told["logprob"], len(told["top_logprobs"])) == ("Hi", -0.5, 1)
    assert answer.json()["top_logprobs"] == 1


async def test_logprobs_without_alternatives_are_asked_by_include_alone(many) -> None:
    await ask(many, include=["message.output_text.logprobs"])
    assert asked_of(many).sampling.logprobs == 0
    await ask(many)
    assert asked_of(many).sampling.logprobs is None


async def test_what_is_an_upstreams_own_is_passed_on_under_its_name_in_chat(many) -> None:
    answer = await ask(
        many,
        reasoning={"effort": "low"},
        text={"verbosity": "high"},
        service_tier="flex",
        metadata={"team": "blue"},
        store=True,
        user="ann",
    )
    passed = asked_of(many).passed_on
    assert passed == {"reasoning_effort": "low", "verbosity": "high", "service_tier": "flex", "user": "ann"}
    body = answer.json()
    assert body["reasoning"] == {"effort": "low", "summary": None}
    assert body["text"]["verbosity"] == "high"
    assert (body["service_tier"], body["metadata"], body["store"]) == ("flex", {"team": "blue"}, False)


async def test_only_headers_that_the_catalogue_names_are_seen_by_the_upstream(many) -> None:
    headers = {"x-tenant": "blue", "x-other": "red", "authorization": "Bearer mine"}
    await many.http.post("/v1/responses", json={"model": "remote", "input": "Hi"}, headers=headers)
    assert asked_of(many).headers == {"x-tenant": "blue"}


LACKING: dict[str, tuple[str, dict[str, Any], str]] = {
    "effort": ("local", {"reasoning": {"effort": "high"}}, "reasoning.effort"),
    "verbosity": ("claude", {"text": {"verbosity": "low"}}, "text.verbosity"),
    "a schema": ("claude", {"text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}}, "text.format"),
    "logprobs": ("claude", {"include": ["message.output_text.logprobs"]}, "include"),
    "functions": ("chat", {"tools": [NOW]}, "tools"),
    "calls in the history": ("chat", {"input": [{"role": "user", "content": "Hi"}, CALL, OUTPUT]}, "input[1]"),
}


@pytest.mark.parametrize(("model", "fields", "param"), LACKING.values(), ids=LACKING)
async def test_what_a_backend_lacks_is_refused_by_its_name_here(many, model, fields, param) -> None:
    response = await ask(many, model, **fields)
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (400, param, "unsupported_parameter")
    assert f"'{param}'" in error["message"]
    assert many.leaf.asked == []


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("param", "own"),
    [
        ("messages", "input"),
        ("messages[7].content", "input"),
        ("messages.1.content", "input"),
        ("response_format", "text.format"),
        ("temperature", "temperature"),
        (None, None),
    ],
)
async def test_what_an_upstream_refuses_is_told_in_the_words_of_this_api(many, stream, param, own) -> None:
    many.leaf.script = [BadInput(f"Invalid '{param}'.", param=param)]
    response = await ask(many, stream=stream)
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, own)
    assert error["message"] == f"Invalid '{own}'."
