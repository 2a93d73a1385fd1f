"""What a model's backend lacks is refused by name, with the models that can; what it has reaches it as it was asked."""

from typing import Any

import pytest

from zooserve_router.chat.generation import Constraint, Conversation, Tool, ToolChoice

USER = {"role": "user", "content": "Hi"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
AS_SCHEMA = {"type": "json_schema", "json_schema": {"name": "form", "schema": SCHEMA, "strict": True}}
TOOL = {"type": "function", "function": {"name": "add", "parameters": SCHEMA}}
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
SEEN = {"messages": [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, IMAGE]}]}
CALLED = {
    "messages": [
        USER,
        {
            "role": "assistant",
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": ""}}],
        },
        {"role": "tool", "tool_call_id": "1", "content": "4"},
    ]
}

LACKING: list[tuple[str, dict[str, Any], str, list[str]]] = [
    ("chat", {"logprobs": True}, "logprobs", ["grammar", "remote", "local"]),
    ("chat", {"logprobs": True, "top_logprobs": 2}, "logprobs", ["grammar", "remote", "local"]),
    ("chat", {"logit_bias": {"5": 1}}, "logit_bias", ["grammar", "remote", "local"]),
    ("chat", {"response_format": {"type": "json_object"}}, "response_format", ["grammar", "remote", "local"]),
    ("chat", {"response_format": AS_SCHEMA}, "response_format", ["grammar", "remote", "local"]),
    ("chat", {"tools": [TOOL]}, "tools", ["grammar", "remote", "local", "claude"]),
    ("chat", CALLED, "messages[1].tool_calls", ["grammar", "remote", "local", "claude"]),
    ("chat", SEEN, "messages[0].content[1]", ["remote", "local", "claude"]),
    ("grammar", SEEN, "messages[0].content[1]", ["remote", "local", "claude"]),
    ("claude", {"presence_penalty": 1}, "presence_penalty", ["chat", "grammar", "remote", "local"]),
    ("claude", {"frequency_penalty": -1}, "frequency_penalty", ["chat", "grammar", "remote", "local"]),
    ("claude", {"seed": 5}, "seed", ["chat", "grammar", "remote", "local"]),
    ("claude", {"response_format": AS_SCHEMA}, "response_format", ["grammar", "remote", "local"]),
    ("claude", {"logprobs": True}, "logprobs", ["grammar", "remote", "local"]),
]


@pytest.mark.parametrize(("model", "fields", "param", "able"), LACKING)
async def test_what_a_backend_lacks_is_refused_with_the_models_that_can(many, model, fields, param, able) -> None:
    response = await many.chat(model=model, **fields)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, "unsupported_parameter", param)
    assert f"'{param}'" in error["message"]
    assert model in error["message"]
    assert error["message"].endswith(f"Models here that can: {', '.join(able)}.")
    assert many.leaf.asked == []


async def test_where_no_model_can_it_is_said_so(edge) -> None:
    error = (await edge.chat(response_format=AS_SCHEMA)).json()["error"]
    assert error["message"].endswith(
        "(llmapi) cannot hold an answer to a JSON schema. No model that is served here can."
    )


NOTHING_ASKED: list[dict[str, Any]] = [
    {"logprobs": False},
    {"top_logprobs": 0},
    {"logit_bias": {}},
    {"tools": []},
    {"tool_choice": "none"},
    {"tool_choice": "auto"},
    {"parallel_tool_calls": True},
    {"response_format": {"type": "text"}},
    {"presence_penalty": 0},
    {"frequency_penalty": 0.0},
    {"n": 2},
    {"stop": "END"},
    {"seed": None},
]


@pytest.mark.parametrize("model", ["chat", "claude"])
@pytest.mark.parametrize("fields", NOTHING_ASKED, ids=str)
async def test_what_asks_for_nothing_or_is_done_here_needs_no_feature(many, model, fields) -> None:
    response = await many.chat(model=model, **fields)
    assert response.status_code == 200, response.text


async def test_an_upstream_gets_what_was_asked(many) -> None:
    response = await many.chat(
        model="remote",
        tools=[TOOL],
        tool_choice={"type": "function", "function": {"name": "add"}},
        parallel_tool_calls=False,
        response_format=AS_SCHEMA,
        logprobs=True,
        top_logprobs=3,
        logit_bias={"17": -100, "5": 2.5},
        n=2,
        **SEEN,
    )
    assert response.status_code == 200, response.text
    (asked,) = many.leaf.asked
    assert isinstance(asked, Conversation)
    assert asked.tools == (Tool("add", None, SCHEMA, strict=False),)
    assert asked.tool_choice == ToolChoice("function", "add")
    assert asked.parallel_tool_calls is False
    assert asked.constraint == Constraint(SCHEMA, "form", None, strict=True)
    assert (asked.sampling.logprobs, dict(asked.sampling.logit_bias), asked.n) == (3, {17: -100.0, 5: 2.5}, 2)
    assert asked.messages[-1]["content"] == [{"type": "text", "text": "What is it?"}, IMAGE]


async def test_a_leaf_with_a_grammar_is_held_to_the_schema(many) -> None:
    await many.chat(model="grammar", response_format=AS_SCHEMA)
    assert many.leaf.asked[0].constraint.schema == SCHEMA


@pytest.mark.parametrize("model", ["chat", "remote", "claude"])
async def test_n_answers_come_from_every_backend(many, model) -> None:
    response = await many.chat(model=model, n=2)
    assert [choice["message"]["content"] for choice in response.json()["choices"]] == ["Hello", "Hello"]


async def test_raw_prompts_to_a_backend_without_them_are_sent_on_to_the_chat_route(many) -> None:
    response = await many.http.post("/v1/completions", json={"model": "claude", "prompt": "Hi"})
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, "unsupported_parameter", "model")
    assert "/v1/chat/completions" in error["message"]
    assert "chat, grammar, remote, local" in error["message"]
