"""Whatever a body holds, the answer is an answer or a 4xx in OpenAI's shape, and what is refused reaches no backend."""

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

USER = {"role": "user", "content": "Hi"}
TEXT = st.text(max_size=8) | st.sampled_from(
    ["Hi", "<|im_start|>", "\0", "function", "text", "add", "required", "auto"]
)
SCALAR = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
ANY = st.recursive(SCALAR, lambda value: st.lists(value, max_size=3) | st.dictionaries(TEXT, value, max_size=3))


def objects(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """Objects of these fields, each left out, right, or anything at all."""
    return st.fixed_dictionaries({}, optional={name: good | ANY for name, good in fields.items()}) | ANY


CALL = objects({"id": TEXT, "type": st.just("function"), "function": objects({"name": TEXT, "arguments": TEXT})})
PART = objects(
    {
        "type": st.sampled_from(["text", "image_url", "refusal", "input_audio"]),
        "text": TEXT,
        "refusal": TEXT,
        "image_url": objects({"url": st.sampled_from(["http://a/b.png", "data:image/png;base64,aGk="])}),
    }
)
MESSAGE = st.just(USER) | objects(
    {
        "role": st.sampled_from(["system", "developer", "user", "assistant", "tool", "function"]),
        "content": TEXT | st.lists(PART, max_size=3),
        "tool_calls": st.lists(CALL, max_size=2),
        "tool_call_id": TEXT,
        "name": TEXT,
    }
)
SCHEMA = st.deferred(
    lambda: objects(
        {
            "type": st.sampled_from(["object", "string", "array", "integer"]),
            "properties": st.dictionaries(TEXT, SCHEMA, max_size=2),
            "items": SCHEMA,
            "anyOf": st.lists(SCHEMA, max_size=2),
            "$defs": st.dictionaries(TEXT, SCHEMA, max_size=2),
            "$ref": st.sampled_from(["#", "#/$defs/add", "#/anyOf/0", "http://a"]),
            "pattern": TEXT,
            "required": st.lists(TEXT, max_size=2),
            "additionalProperties": st.booleans(),
            "enum": st.lists(SCALAR, max_size=2),
        }
    )
)
FUNCTION = objects({"name": TEXT, "description": TEXT, "parameters": SCHEMA, "strict": st.booleans()})
TOOL = objects({"type": st.just("function"), "function": FUNCTION})
FIELDS = {
    "messages": st.lists(MESSAGE, max_size=4),
    "temperature": st.floats(0, 2),
    "top_p": st.floats(0, 1),
    "n": st.integers(-1, 4),
    "stop": TEXT | st.lists(TEXT, max_size=5),
    "seed": st.integers(),
    "max_tokens": st.integers(-1, 50),
    "max_completion_tokens": st.integers(-1, 50),
    "presence_penalty": st.floats(-2, 2),
    "logit_bias": st.dictionaries(st.sampled_from(["1", "999999", "a", "-1", "²"]), st.floats(-100, 100), max_size=3),
    "logprobs": st.booleans(),
    "top_logprobs": st.integers(-1, 21),
    "response_format": objects(
        {
            "type": st.sampled_from(["text", "json_object", "json_schema"]),
            "json_schema": objects({"name": TEXT, "schema": SCHEMA, "strict": st.booleans()}),
        }
    ),
    "tools": st.lists(TOOL, max_size=3),
    "tool_choice": TEXT
    | objects({"type": TEXT, "function": FUNCTION, "allowed_tools": objects({"tools": st.lists(TOOL)})}),
    "parallel_tool_calls": st.booleans(),
    "stream": st.booleans(),
    "stream_options": objects({"include_usage": st.booleans()}),
    "metadata": st.dictionaries(TEXT, TEXT),
    "service_tier": TEXT,
    "reasoning_effort": TEXT,
    "modalities": st.lists(TEXT, max_size=2),
    "user": TEXT,
}
CHAT = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["chat", "grammar", "remote", "local", "claude"]),
        "messages": st.just([USER]) | FIELDS["messages"] | ANY,
    },
    optional={name: good | ANY for name, good in FIELDS.items() if name != "messages"},
)
COMPLETION = st.fixed_dictionaries(
    {"model": st.sampled_from(["chat", "grammar", "remote", "local", "claude"])},
    optional={
        "prompt": TEXT | st.lists(TEXT | st.integers(-1, 300) | st.lists(st.integers(-1, 300))) | ANY,
        "logprobs": st.integers(-1, 6) | ANY,
        "echo": st.booleans() | ANY,
        "suffix": TEXT | ANY,
        "best_of": st.integers(-1, 3) | ANY,
        **{name: good | ANY for name, good in FIELDS.items() if name not in ("messages", "logprobs")},
    },
)
THOROUGH = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@THOROUGH
@given(body=CHAT)
async def test_no_chat_is_answered_with_a_failure_of_ours(many, body) -> None:
    await _ask(many, "/v1/chat/completions", body)


@THOROUGH
@given(body=COMPLETION)
async def test_no_completion_is_answered_with_a_failure_of_ours(many, body) -> None:
    await _ask(many, "/v1/completions", body)


async def _ask(many, path: str, body: dict[str, Any]) -> None:
    many.leaf.asked.clear()
    response = await many.http.post(path, content=json.dumps(body).encode())
    if response.status_code == 200:
        assert many.leaf.asked
        return
    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (400, "invalid_request_error"), error
    assert error["code"]
    assert error["message"]
    assert many.leaf.asked == []
