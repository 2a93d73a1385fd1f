"""What /v1/responses refuses: always a 4xx that names the field, whatever comes."""

import json
from typing import Any

import pytest

BODY: dict[str, Any] = {"model": "chat", "input": "Hi"}
TOOL = {"type": "function", "name": "now", "parameters": {"type": "object", "properties": {}}}
FORMAT = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
CALL = {"type": "function_call", "call_id": "a", "name": "now", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "a", "output": "noon"}

BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "no input": ({"input": None}, "input", "missing_required_parameter"),
    "empty input": ({"input": ""}, "input", "invalid_value"),
    "no items": ({"input": []}, "input", "empty_array"),
    "no model": ({"model": None}, "model", "missing_required_parameter"),
    "a model that is a number": ({"model": 7}, "model", "invalid_type"),
    "instructions that are a list": ({"instructions": ["Be kind."]}, "instructions", "invalid_type"),
    "a control token": ({"input": "a<|im_end|>b"}, "input", "control_token_in_content"),
    "a control token in instructions": ({"instructions": "<|im_start|>"}, "instructions", "control_token_in_content"),
    "a control token in an item": (
        {"input": [{"role": "user", "content": "Hi"}, {"role": "user", "content": "<|im_start|>system"}]},
        "input[1].content",
        "control_token_in_content",
    ),
    "a template that raises": ({"input": "please raise"}, "input", "template_failed"),
    "too long": ({"input": "word " * 200}, "input", "context_length_exceeded"),
    "far too long": ({"input": "x" * 4_000_000}, "input", "context_length_exceeded"),
    "no room for the answer": ({"input": "x" * 320, "max_output_tokens": 90}, "input", "context_length_exceeded"),
    "no answer": ({"max_output_tokens": 0}, "max_output_tokens", "invalid_value"),
    "half an answer": ({"max_output_tokens": 1.5}, "max_output_tokens", "invalid_type"),
    "too hot": ({"temperature": 2.1}, "temperature", "invalid_value"),
    "top_p above one": ({"top_p": 1.1}, "top_p", "invalid_value"),
    "top_p that is text": ({"top_p": "high"}, "top_p", "invalid_type"),
    "a stream that is text": ({"stream": "yes"}, "stream", "invalid_type"),
    "options without a stream": ({"stream_options": {}}, "stream_options", "invalid_parameter_combination"),
    "options that are a list": ({"stream": True, "stream_options": []}, "stream_options", "invalid_type"),
    "obfuscation": (
        {"stream": True, "stream_options": {"include_obfuscation": True}},
        "stream_options.include_obfuscation",
        "unsupported_parameter",
    ),
    "chat's usage option": (
        {"stream": True, "stream_options": {"include_usage": True}},
        "stream_options.include_usage",
        "unknown_parameter",
    ),
    "chat's messages": ({"messages": [{"role": "user", "content": "Hi"}]}, "messages", "unsupported_parameter"),
    "chat's max_tokens": ({"max_tokens": 5}, "max_tokens", "unsupported_parameter"),
    "chat's response_format": ({"response_format": {"type": "text"}}, "response_format", "unsupported_parameter"),
    "several choices": ({"n": 1000}, "n", "unknown_parameter"),
    "a stop string": ({"stop": "END"}, "stop", "unknown_parameter"),
    "a seed": ({"seed": 7}, "seed", "unknown_parameter"),
    "a bias": ({"logit_bias": {"7": 1}}, "logit_bias", "unknown_parameter"),
    "a typing error": ({"max_output_token": 7}, "max_output_token", "unknown_parameter"),
    "an earlier response": ({"previous_response_id": "resp_1"}, "previous_response_id", "unsupported_parameter"),
    "a conversation": ({"conversation": "conv_1"}, "conversation", "unsupported_parameter"),
    "a conversation by object": ({"conversation": {"id": "conv_1"}}, "conversation", "unsupported_parameter"),
    "background": ({"background": True}, "background", "unsupported_parameter"),
    "a stored prompt": ({"prompt": {"id": "pmpt_1"}}, "prompt", "unsupported_parameter"),
    "truncation": ({"truncation": "auto"}, "truncation", "unsupported_parameter"),
    "odd truncation": ({"truncation": "middle"}, "truncation", "invalid_value"),
    "a store that is text": ({"store": "yes"}, "store", "invalid_type"),
    "encrypted reasoning": ({"include": ["reasoning.encrypted_content"]}, "include", "unsupported_parameter"),
    "an unknown include": ({"include": ["everything"]}, "include", "invalid_value"),
    "an include that is a number": ({"include": [7]}, "include", "invalid_value"),
    "include as text": ({"include": "message.output_text.logprobs"}, "include", "invalid_type"),
    "logprobs": ({"include": ["message.output_text.logprobs"]}, "include", "unsupported_parameter"),
    "top logprobs": ({"top_logprobs": 3}, "include", "unsupported_parameter"),
    "too many logprobs": ({"top_logprobs": 21}, "top_logprobs", "invalid_value"),
    "effort": ({"reasoning": {"effort": "high"}}, "reasoning.effort", "unsupported_parameter"),
    "odd effort": ({"reasoning": {"effort": "some"}}, "reasoning.effort", "invalid_value"),
    "a summary of reasoning": ({"reasoning": {"summary": "auto"}}, "reasoning.summary", "unsupported_parameter"),
    "reasoning as text": ({"reasoning": "high"}, "reasoning", "invalid_type"),
    "an unknown field of reasoning": ({"reasoning": {"colour": 1}}, "reasoning.colour", "unknown_parameter"),
    "text as text": ({"text": "json"}, "text", "invalid_type"),
    "verbosity": ({"text": {"verbosity": "high"}}, "text.verbosity", "unsupported_parameter"),
    "an unknown field of text": ({"text": {"colour": 1}}, "text.colour", "unknown_parameter"),
    "a format of no type": ({"text": {"format": {}}}, "text.format.type", "missing_required_parameter"),
    "an unknown format": ({"text": {"format": {"type": "xml"}}}, "text.format.type", "invalid_value"),
    "json": ({"text": {"format": {"type": "json_object"}}}, "text.format", "unsupported_parameter"),
    "a schema": ({"text": {"format": FORMAT}}, "text.format", "unsupported_parameter"),
    "a schema nested as in chat": (
        {"text": {"format": {"type": "json_schema", "json_schema": {}}}},
        "text.format.schema",
        "missing_required_parameter",
    ),
    "a bad schema": (
        {"text": {"format": {**FORMAT, "schema": {"type": "thing"}}}},
        "text.format.schema",
        "invalid_json_schema",
    ),
    "a schema of no name": (
        {"text": {"format": {**FORMAT, "name": None}}},
        "text.format.name",
        "missing_required_parameter",
    ),
    "tools that are an object": ({"tools": TOOL}, "tools", "invalid_type"),
    "a tool": ({"tools": [TOOL]}, "tools", "unsupported_parameter"),
    "a hosted tool": ({"tools": [{"type": "web_search"}]}, "tools[0].type", "unsupported_parameter"),
    "a tool of no type": ({"tools": [{"name": "now"}]}, "tools[0].type", "missing_required_parameter"),
    "a tool nested as in chat": (
        {"tools": [{"type": "function", "function": {"name": "now"}}]},
        "tools[0].name",
        "missing_required_parameter",
    ),
    "two tools of one name": ({"tools": [TOOL, TOOL]}, "tools[1]", "duplicate_tool_name"),
    "a tool with bad parameters": (
        {"tools": [{**TOOL, "parameters": {"type": "array"}}]},
        "tools[0].parameters",
        "invalid_function_parameters",
    ),
    "a deferred tool": (
        {"tools": [{**TOOL, "defer_loading": True}]},
        "tools[0].defer_loading",
        "unsupported_parameter",
    ),
    "a choice without tools": ({"tool_choice": "required"}, "tool_choice", "invalid_parameter_combination"),
    "an odd choice": ({"tool_choice": "maybe"}, "tool_choice", "invalid_value"),
    "a choice of a hosted tool": (
        {"tools": [TOOL], "tool_choice": {"type": "file_search"}},
        "tool_choice.type",
        "unsupported_parameter",
    ),
    "a choice of no tool": (
        {"tools": [TOOL], "tool_choice": {"type": "function", "name": "then"}},
        "tool_choice",
        "invalid_value",
    ),
    "no allowed tools": (
        {"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}},
        "tool_choice.tools",
        "empty_array",
    ),
    "calls in the history": ({"input": [CALL, OUTPUT]}, "input[0]", "unsupported_parameter"),
    "an output without its call": ({"input": [OUTPUT]}, "input[0].call_id", "tool_result_without_call"),
    "metadata that is a list": ({"metadata": ["a"]}, "metadata", "invalid_type"),
    "metadata of numbers": ({"metadata": {"a": 1}}, "metadata.a", "invalid_type"),
    "too much metadata": ({"metadata": {str(number): "" for number in range(17)}}, "metadata", "invalid_value"),
    "an odd tier": ({"service_tier": "first class"}, "service_tier", "invalid_value"),
    "a user that is a number": ({"user": 7}, "user", "invalid_type"),
    "no tool calls at all": ({"max_tool_calls": 0}, "max_tool_calls", "invalid_value"),
}


@pytest.mark.parametrize(("fields", "param", "code"), BAD.values(), ids=BAD)
async def test_bad_requests_are_400_with_param_and_code(edge, fields, param, code) -> None:
    response = await edge.http.post("/v1/responses", json={**BODY, **fields})
    error = response.json()["error"]
    assert response.status_code == 400, error
    assert (error["param"], error["code"]) == (param, code), error["message"]
    assert error["type"] == "invalid_request_error"
    assert edge.leaf.asked == []


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b'"Hi"', b"{", b'{"model": "chat", "input": "\xff"}', b'{"input": "\\ud800"}', b"[" * 9000],
    ids=["nothing", "null", "a list", "text", "half", "not UTF-8", "half a pair", "deep"],
)
async def test_bodies_that_are_no_request_are_400(edge, body) -> None:
    response = await edge.http.post("/v1/responses", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert response.json()["error"]["message"]


NOTHING: dict[str, Any] = {
    "background": False,
    "conversation": None,
    "include": [],
    "max_output_tokens": None,
    "n": None,
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "service_tier": "auto",
    "stream": False,
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "truncation": "disabled",
}


async def test_fields_that_ask_for_nothing_are_taken(edge) -> None:
    assert (await edge.http.post("/v1/responses", json={**BODY, **NOTHING})).status_code == 200


async def test_what_hosted_tools_would_include_is_taken_and_never_comes(edge) -> None:
    body = {**BODY, "include": ["web_search_call.results", "file_search_call.results"]}
    assert (await edge.http.post("/v1/responses", json=body)).status_code == 200


async def test_a_typing_error_is_told_the_name_of_this_api_and_not_of_another(edge) -> None:
    error = (await edge.http.post("/v1/responses", json={**BODY, "max_output_token": 7})).json()["error"]
    assert "Did you mean `max_output_tokens`?" in error["message"]
    error = (await edge.http.post("/v1/responses", json={**BODY, "zzzzzzzz": 7})).json()["error"]
    assert "input, instructions" in error["message"]
    assert " max_tokens" not in error["message"]


async def test_an_unknown_model_is_404(edge) -> None:
    response = await edge.http.post("/v1/responses", json={**BODY, "model": "chatt"})
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"


async def test_more_items_than_are_read_are_refused(edge) -> None:
    items = [{"role": "user", "content": "x"}] * 10_000
    error = (await edge.http.post("/v1/responses", json={**BODY, "input": items})).json()["error"]
    assert (error["param"], error["code"]) == ("input", "too_many_items")


ODD: list[Any] = [None, True, 0, -1, 1e308, "", "\0", "x" * 600, [], [None], [[]], {}, {"": None}, {"type": []}]
FIELDS = (
    "background",
    "conversation",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "moderation",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt",
    "reasoning",
    "service_tier",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
)


@pytest.mark.parametrize("name", FIELDS)
async def test_no_value_of_a_field_is_a_500(edge, name) -> None:
    for value in ODD:
        response = await edge.http.post("/v1/responses", json={**BODY, name: value})
        assert response.status_code in (200, 400, 404), json.dumps(value)


@pytest.mark.parametrize(
    ("around", "names"),
    [
        (lambda part: {"input": [part]}, ("type", "role", "content", "call_id", "output", "arguments", "name", "id")),
        (lambda part: {"input": [{"role": "user", "content": [part]}]}, ("type", "text", "image_url")),
        (lambda part: {"text": part}, ("format", "verbosity")),
        (lambda part: {"text": {"format": part}}, ("type", "schema", "name", "strict", "description")),
        (lambda part: {"tools": [part]}, ("type", "name", "parameters", "strict", "description")),
        (lambda part: {"tools": [TOOL], "tool_choice": part}, ("type", "name", "mode", "tools")),
    ],
    ids=["item", "part", "text", "format", "tool", "choice"],
)
async def test_no_value_within_a_field_is_a_500(edge, around, names) -> None:
    kinds = ("message", "function_call", "function_call_output", "reasoning", "input_text", "json_schema", "function")
    for kind in (*kinds, "allowed_tools"):
        for name in names:
            for value in ODD:
                response = await edge.http.post("/v1/responses", json={**BODY, **around({"type": kind, name: value})})
                assert response.status_code in (200, 400), json.dumps({"type": kind, name: value})
