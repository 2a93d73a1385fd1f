"""The bad input that clients are known to send, each with the status, the param and the code that it gets."""

import pytest

USER = {"role": "user", "content": "Hi"}
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
BROKEN = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "objec"}}}
SCHEMA_AT = "response_format.json_schema.schema"
JSON_AND_NO_STREAM = {"response_format": {"type": "json_object"}, "stream_options": {"include_usage": True}}

NAMED = {
    "context overflow": ("chat", {"messages": [{**USER, "content": "x" * 500}]}, "messages", "context_length_exceeded"),
    "context overflow by the answer": (
        "chat",
        {"messages": [{**USER, "content": "x" * 300}], "max_completion_tokens": 100},
        "messages",
        "context_length_exceeded",
    ),
    "a template error": ("chat", {"messages": [{**USER, "content": "please raise"}]}, "messages", "template_failed"),
    "an invalid JSON schema": ("remote", {"response_format": BROKEN}, SCHEMA_AT, "invalid_json_schema"),
    "an invalid JSON schema to a model without": (
        "chat",
        {"response_format": BROKEN},
        SCHEMA_AT,
        "invalid_json_schema",
    ),
    "two bounds": (
        "chat",
        {"max_tokens": 3, "max_completion_tokens": 4},
        "max_tokens",
        "invalid_parameter_combination",
    ),
    "stream options without a stream": (
        "remote",
        JSON_AND_NO_STREAM,
        "stream_options",
        "invalid_parameter_combination",
    ),
    "alternatives without probabilities": (
        "remote",
        {"top_logprobs": 2},
        "top_logprobs",
        "invalid_parameter_combination",
    ),
    "a demanded call without tools": (
        "remote",
        {"tool_choice": "required"},
        "tool_choice",
        "invalid_parameter_combination",
    ),
    "10,000 messages": ("chat", {"messages": [USER] * 10_000}, "messages", "too_many_items"),
    "a tool result without a call": (
        "chat",
        {"messages": [USER, {"role": "tool", "tool_call_id": "1", "content": "4"}]},
        "messages[1].tool_call_id",
        "tool_result_without_call",
    ),
    "an image to a text model": (
        "chat",
        {"messages": [{"role": "user", "content": [IMAGE]}]},
        "messages[0].content[0]",
        "unsupported_parameter",
    ),
    "a bias on no token of the vocabulary": (
        "grammar",
        {"logit_bias": {"999999": 1}},
        "logit_bias",
        "token_not_in_vocabulary",
    ),
    "a bias on what is no token": ("remote", {"logit_bias": {"Hi": 1}}, "logit_bias", "invalid_value"),
    "a negative token": ("remote", {"logit_bias": {"-5": 1}}, "logit_bias", "invalid_value"),
    "a bias beyond 100": ("remote", {"logit_bias": {"5": 101}}, "logit_bias.5", "invalid_value"),
    "a bias in words": ("remote", {"logit_bias": {"5": "much"}}, "logit_bias.5", "invalid_type"),
    "very many biases": ("remote", {"logit_bias": {str(k): 1 for k in range(1025)}}, "logit_bias", "too_many_items"),
    "a thousand answers": ("chat", {"n": 1000}, "n", "invalid_value"),
    "more answers than are made at once": ("chat", {"n": 17}, "n", "invalid_value"),
    "21 alternatives": ("remote", {"logprobs": True, "top_logprobs": 21}, "top_logprobs", "invalid_value"),
}


@pytest.mark.parametrize(("model", "fields", "param", "code"), NAMED.values(), ids=NAMED)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_bad_input_is_400_with_its_param_and_code(many, model, fields, param, code, stream) -> None:
    streamed = {"stream": True} if stream and "stream_options" not in fields else {}
    response = await many.chat(**{"model": model, **streamed, **fields})
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (400, param, code), error["message"]
    assert error["type"] == "invalid_request_error"
    assert error["message"]
    assert many.leaf.asked == []
    assert many.budget.taken_tokens == 0


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses"])
async def test_invalid_utf8_is_400_and_says_where(edge, path) -> None:
    response = await edge.http.post(path, content=b'{"model":"chat","input":"\xff"}')
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (400, None, "invalid_json")
    assert "Byte 25 is not UTF-8" in error["message"]


async def test_a_biased_token_of_the_vocabulary_reaches_the_backend(many) -> None:
    response = await many.chat(model="grammar", logit_bias={"7": -100})
    assert response.status_code == 200, response.text
    assert dict(many.leaf.asked[0].sampling.logit_bias) == {7: -100.0}
