"""Whatever a body of /v1/responses holds, the answer is a response, or a 4xx in OpenAI's shape."""

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai.types.responses import Response

TEXT = st.text(max_size=8) | st.sampled_from(
    ["Hi", "<|im_start|>", "\0", "function", "text", "now", "required", "auto"]
)
SCALAR = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
ANY = st.recursive(SCALAR, lambda value: st.lists(value, max_size=3) | st.dictionaries(TEXT, value, max_size=3))


def objects(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """Objects of these fields, each left out, right, or anything at all."""
    return st.fixed_dictionaries({}, optional={name: good | ANY for name, good in fields.items()}) | ANY


PART = objects(
    {
        "type": st.sampled_from(["input_text", "output_text", "refusal", "input_image"]),
        "text": TEXT,
        "refusal": TEXT,
        "annotations": st.just([]),
    }
)
IDS = st.sampled_from(["call_a", "call_b"])
ITEM = (
    st.just({"role": "user", "content": "Hi"})
    | st.just({"type": "function_call", "call_id": "call_a", "name": "now", "arguments": "{}"})
    | st.just({"type": "function_call_output", "call_id": "call_a", "output": "noon"})
    | objects(
        {
            "type": st.sampled_from(["message", "function_call", "function_call_output", "reasoning"]),
            "role": st.sampled_from(["system", "developer", "user", "assistant"]),
            "content": TEXT | st.lists(PART, max_size=3),
            "call_id": IDS,
            "name": TEXT,
            "arguments": TEXT,
            "output": TEXT | st.lists(PART, max_size=2),
            "summary": st.just([]),
            "status": st.just("completed"),
            "id": TEXT,
        }
    )
)
SCHEMA = st.just({"type": "object", "properties": {}}) | objects({"type": TEXT, "$ref": st.just("#")})
TOOL = st.just({"type": "function", "name": "now"}) | objects(
    {"type": st.just("function"), "name": TEXT, "parameters": SCHEMA, "strict": st.booleans()}
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "background": st.booleans(),
    "include": st.lists(st.just("message.output_text.logprobs"), max_size=2),
    "instructions": TEXT,
    "max_output_tokens": st.integers(-1, 50),
    "metadata": st.dictionaries(TEXT, TEXT, max_size=2),
    "parallel_tool_calls": st.booleans(),
    "previous_response_id": TEXT,
    "reasoning": objects({"effort": st.just("low"), "summary": TEXT}),
    "service_tier": st.just("auto"),
    "store": st.booleans(),
    "stream_options": objects({"include_obfuscation": st.booleans()}),
    "temperature": st.floats(0, 2),
    "text": objects(
        {
            "format": objects(
                {"type": st.sampled_from(["text", "json_object", "json_schema"]), "name": TEXT, "schema": SCHEMA}
            ),
            "verbosity": st.just("low"),
        }
    ),
    "tool_choice": st.sampled_from(["none", "auto", "required"])
    | objects({"type": st.sampled_from(["function", "allowed_tools"]), "name": TEXT, "tools": st.lists(TOOL)}),
    "tools": st.lists(TOOL, max_size=3),
    "top_logprobs": st.integers(-1, 21),
    "top_p": st.floats(0, 1),
    "truncation": st.just("disabled"),
    "user": TEXT,
}
BASE = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["chat", "grammar", "remote", "local", "claude"]),
        "input": st.just("Hi") | st.lists(ITEM, max_size=5) | ANY,
    }
)
# A few fields at a time: of many random ones one is always refused.
FEW = st.lists(st.sampled_from(sorted(FIELDS)), max_size=3, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: FIELDS[name] | ANY for name in names})
)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(base=BASE, fields=FEW, stream=st.booleans())
async def test_no_request_is_answered_with_a_failure_of_ours(many, base, fields, stream) -> None:
    many.leaf.asked.clear()
    body = json.dumps({**base, **fields, "stream": stream}).encode()
    response = await many.http.post("/v1/responses", content=body)
    if response.status_code == 200:
        assert many.leaf.asked
        Response.model_validate(
            json.loads(response.text.split("data: ")[-1])["response"] if stream else response.json()
        )
        return
    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (400, "invalid_request_error"), error
    assert error["code"]
    assert error["message"]
    assert many.leaf.asked == []
