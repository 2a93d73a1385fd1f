"""Whatever a body holds, the answer is an answer or a 4xx in OpenAI's shape, and what is refused reaches no backend."""

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

USER = {"role": "user", "content": "Hi"}
NAME = st.sampled_from(["add", "sub", "f-1"])
TEXT = st.text(max_size=8) | st.sampled_from(["Hi", "<|im_start|>", "\0", "function", "add", "required", "auto"])
SCALAR = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
ANY = st.recursive(SCALAR, lambda value: st.lists(value, max_size=3) | st.dictionaries(TEXT, value, max_size=3))


def mostly(good: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """As it should be; one in twelve times anything at all."""
    return st.integers(0, 11).flatmap(lambda drawn: good if drawn else ANY)


def objects(needed: dict[str, Any], optional: dict[str, Any] | None = None) -> st.SearchStrategy[Any]:
    """Objects of these fields, mostly right."""
    may = {name: mostly(good) for name, good in (optional or {}).items()}
    return mostly(st.fixed_dictionaries({name: mostly(good) for name, good in needed.items()}, optional=may))


ARGUMENTS = st.sampled_from(["{}", '{"a":1}', "", "no JSON"])
FUNCTION_CALLED = objects({"name": NAME, "arguments": ARGUMENTS})
CALL = objects({"id": st.sampled_from(["1", "2"]), "type": st.just("function"), "function": FUNCTION_CALLED})
IMAGE = objects({"url": st.sampled_from(["http://a/b.png", "data:image/png;base64,aGk="])})
PART = objects({"type": st.just("text"), "text": TEXT}) | objects({"type": st.just("image_url"), "image_url": IMAGE})
USER_SAYS = objects({"role": st.just("user"), "content": TEXT | st.lists(PART, min_size=1, max_size=3)})
ASSISTANT_SAYS = objects(
    {"role": st.just("assistant"), "content": TEXT}, {"tool_calls": st.lists(CALL, max_size=2), "refusal": TEXT}
)
TOOL_SAYS = objects({"role": st.just("tool"), "content": TEXT, "tool_call_id": st.sampled_from(["1", "2"])})
MESSAGE = st.just(USER) | USER_SAYS | ASSISTANT_SAYS | TOOL_SAYS
SCHEMA: st.SearchStrategy[Any] = st.deferred(
    lambda: (
        objects(
            {"type": st.sampled_from(["object", "string", "array", "integer"])},
            {
                "properties": st.dictionaries(NAME, SCHEMA, max_size=2),
                "items": SCHEMA,
                "anyOf": st.lists(SCHEMA, min_size=1, max_size=2),
                "$ref": st.sampled_from(["#", "#/$defs/add", "#/anyOf/0", "http://a"]),
                "pattern": st.sampled_from(["^a+$", "(", "[0-9]{2}"]),
                "required": st.lists(NAME, max_size=2, unique=True),
                "additionalProperties": st.booleans(),
                "enum": st.lists(SCALAR, min_size=1, max_size=2),
            },
        )
        | st.just({"type": "object", "properties": {"a": {"type": "string"}}})
    )
)
FUNCTION = objects({"name": NAME}, {"description": TEXT, "parameters": SCHEMA, "strict": st.booleans()})
TOOL = objects({"type": st.just("function"), "function": FUNCTION})
TOOLS = st.lists(TOOL, max_size=2)
CHOSEN = objects({"type": st.just("function"), "function": objects({"name": NAME})})
ALLOWED = objects({"type": st.just("allowed_tools"), "allowed_tools": objects({"tools": TOOLS})})
FORM = objects({"name": NAME, "schema": SCHEMA}, {"strict": st.booleans(), "description": TEXT})
SHARED = {
    "temperature": st.floats(0, 2),
    "top_p": st.floats(0, 1),
    "n": st.integers(1, 4),
    "stop": TEXT | st.lists(TEXT, max_size=4),
    "seed": st.integers(-(2**63), 2**63 - 1),
    "max_tokens": st.integers(1, 50),
    "presence_penalty": st.floats(-2, 2),
    "logit_bias": st.dictionaries(st.sampled_from(["1", "999999", "a", "-1", "²"]), st.floats(-100, 100), max_size=2),
    "stream": st.booleans(),
    "user": TEXT,
}
FIELDS = {
    **SHARED,
    "max_completion_tokens": st.integers(1, 50),
    "logprobs": st.booleans(),
    "top_logprobs": st.integers(0, 20),
    "response_format": objects({"type": st.sampled_from(["text", "json_object"])})
    | objects({"type": st.just("json_schema"), "json_schema": FORM}),
    "tools": TOOLS,
    "tool_choice": st.sampled_from(["none", "auto", "required"]) | CHOSEN | ALLOWED,
    "parallel_tool_calls": st.booleans(),
    "stream_options": objects({"include_usage": st.booleans()}),
    "metadata": st.dictionaries(TEXT, TEXT, max_size=3),
    "service_tier": st.sampled_from(["auto", "flex"]),
    "reasoning_effort": st.sampled_from(["none", "high"]),
    "modalities": st.just(["text"]),
}
OF_COMPLETIONS = {
    **SHARED,
    "logprobs": st.integers(0, 5),
    "echo": st.booleans(),
    "suffix": st.just(""),
    "best_of": st.integers(1, 2),
}
MODEL = st.sampled_from(["chat", "grammar", "remote", "local", "claude"])
IDS = st.lists(st.integers(0, 255), min_size=1, max_size=3)


def bodies(needed: dict[str, Any], fields: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A few of the fields at a time, mostly right, so that most bodies get past the first check."""
    some = st.lists(st.sampled_from(sorted(fields)), max_size=4, unique=True)
    wanted = {name: mostly(good) for name, good in needed.items()}
    return some.flatmap(
        lambda names: st.fixed_dictionaries(
            {"model": MODEL, **wanted, **{name: mostly(fields[name]) for name in names}}
        )
    )


CHAT = bodies({"messages": st.just([USER]) | st.lists(MESSAGE, min_size=1, max_size=4)}, FIELDS)
COMPLETION = bodies({"prompt": TEXT | IDS | st.lists(TEXT | IDS, min_size=1, max_size=3)}, OF_COMPLETIONS)
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
