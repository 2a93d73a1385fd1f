"""Messages: every role with what it may hold, every call with its one result, images where they may stand."""

from typing import Any

import pytest

from zooserve.errors import BadInput
from zooserve_router.endpoints.messages import messages_in

USER = {"role": "user", "content": "Hi"}
HELLO = {"type": "text", "text": "Hello"}


def called(*ids: str, **fields: Any) -> dict[str, Any]:
    calls = [{"id": call, "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}} for call in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls, **fields}


def call(**fields: Any) -> dict[str, Any]:
    whole = {"id": "1", "type": "function", "function": {"name": "add", "arguments": ""}, **fields}
    return {"role": "assistant", "tool_calls": [{name: value for name, value in whole.items() if value is not None}]}


def result(call: str, content: Any = "4") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": content}


def image(url: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": [HELLO, {"type": "image_url", "image_url": {"url": url, **fields}}]}


BAD: dict[str, tuple[list[Any], str, str]] = {
    "ten thousand messages": ([USER] * 10_000, "messages", "too_many_items"),
    "no role": ([{"content": "Hi"}], "messages[0].role", "invalid_value"),
    "the old role of results": (
        [USER, {"role": "function", "name": "f", "content": "4"}],
        "messages[1].role",
        "unsupported_parameter",
    ),
    "a tool result without a call": ([USER, result("1")], "messages[1].tool_call_id", "tool_result_without_call"),
    "a result after a message of text": (
        [USER, {"role": "assistant", "content": "4"}, result("1")],
        "messages[2].tool_call_id",
        "tool_result_without_call",
    ),
    "a result that comes too late": (
        [called("1"), result("1"), USER, result("1")],
        "messages[3].tool_call_id",
        "tool_result_without_call",
    ),
    "a result of another call": ([called("1"), result("2")], "messages[1].tool_call_id", "tool_result_without_call"),
    "two results of one call": (
        [called("1", "2"), result("1"), result("1")],
        "messages[2].tool_call_id",
        "duplicate_tool_result",
    ),
    "a call without a result": ([USER, called("1"), USER], "messages[1].tool_calls", "tool_call_without_result"),
    "a call without a result at the end": ([USER, called("1")], "messages[1].tool_calls", "tool_call_without_result"),
    "one of two calls without a result": (
        [called("1", "2"), result("2"), USER],
        "messages[0].tool_calls",
        "tool_call_without_result",
    ),
    "a result without its id": (
        [{"role": "tool", "content": "4"}],
        "messages[0].tool_call_id",
        "missing_required_parameter",
    ),
    "calls of a wrong type": ([called(tool_calls="add")], "messages[0].tool_calls", "invalid_type"),
    "a call of a wrong type": ([called(tool_calls=["add"])], "messages[0].tool_calls[0]", "invalid_type"),
    "a call without an id": ([call(id=None)], "messages[0].tool_calls[0].id", "missing_required_parameter"),
    "a call of another type": ([call(type="custom")], "messages[0].tool_calls[0].type", "invalid_value"),
    "a call of nothing": ([call(function=None)], "messages[0].tool_calls[0].function", "missing_required_parameter"),
    "a call of an odd name": (
        [call(function={"name": "a b", "arguments": ""})],
        "messages[0].tool_calls[0].function.name",
        "invalid_value",
    ),
    "a call without arguments": (
        [call(function={"name": "add"})],
        "messages[0].tool_calls[0].function.arguments",
        "missing_required_parameter",
    ),
    "arguments that are an object": (
        [call(function={"name": "add", "arguments": {"a": 1}})],
        "messages[0].tool_calls[0].function.arguments",
        "invalid_type",
    ),
    "arguments of megabytes": (
        [call(function={"name": "add", "arguments": "x" * 2**21})],
        "messages[0].tool_calls[0].function.arguments",
        "invalid_value",
    ),
    "an unknown field of a call": ([call(mood=0)], "messages[0].tool_calls[0].mood", "unknown_parameter"),
    "two calls of one id": ([called("1", "1")], "messages[0].tool_calls", "invalid_value"),
    "very many calls": ([called(*map(str, range(129)))], "messages[0].tool_calls", "too_many_items"),
    "calls of the user": ([{**USER, "tool_calls": []}], "messages[0].tool_calls", "unknown_parameter"),
    "the old field of calls": (
        [{"role": "assistant", "function_call": {"name": "f", "arguments": ""}}],
        "messages[0].function_call",
        "unsupported_parameter",
    ),
    "an answer in audio": (
        [{"role": "assistant", "content": None, "audio": {"id": "1"}}],
        "messages[0].audio",
        "unsupported_parameter",
    ),
    "an assistant that says nothing": (
        [{"role": "assistant", "content": None}],
        "messages[0].content",
        "missing_required_parameter",
    ),
    "no calls and no content": (
        [{"role": "assistant", "content": None, "tool_calls": []}],
        "messages[0].content",
        "missing_required_parameter",
    ),
    "audio": (
        [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}],
        "messages[0].content[0]",
        "unsupported_parameter",
    ),
    "a file": (
        [{"role": "user", "content": [HELLO, {"type": "file", "file": {}}]}],
        "messages[0].content[1]",
        "unsupported_parameter",
    ),
    "a part of a type too deep to print": (
        [{"role": "user", "content": [{"type": [[]]}]}],
        "messages[0].content[0]",
        "unsupported_parameter",
    ),
    "an unknown field of a part": (
        [{"role": "user", "content": [{**HELLO, "mood": 1}]}],
        "messages[0].content[0].mood",
        "unknown_parameter",
    ),
    "an image without a url": (
        [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}],
        "messages[0].content[0].image_url.url",
        "missing_required_parameter",
    ),
    "an image that is a string": (
        [{"role": "user", "content": [{"type": "image_url", "image_url": "http://a/b.png"}]}],
        "messages[0].content[0].image_url",
        "invalid_type",
    ),
    "an image of a file": ([image("file:///etc/passwd")], "messages[0].content[1].image_url.url", "invalid_value"),
    "an image over ftp": ([image("ftp://a/b.png")], "messages[0].content[1].image_url.url", "invalid_value"),
    "an image at an address with spaces": (
        [image("http://a/b c.png")],
        "messages[0].content[1].image_url.url",
        "invalid_value",
    ),
    "an image at an endless address": (
        [image("http://a/" + "x" * 9000)],
        "messages[0].content[1].image_url.url",
        "invalid_value",
    ),
    "an inline page": (
        [image("data:text/html;base64,aGk=")],
        "messages[0].content[1].image_url.url",
        "invalid_value",
    ),
    "an inline image that is no base64": (
        [image("data:image/png;base64,***")],
        "messages[0].content[1].image_url.url",
        "invalid_value",
    ),
    "an image in unknown detail": (
        [image("http://a/b.png", detail="extreme")],
        "messages[0].content[1].image_url.detail",
        "invalid_value",
    ),
    "an image of the system": (
        [{**image("http://a/b.png"), "role": "system"}, USER],
        "messages[0].content",
        "invalid_value",
    ),
    "very many parts": (
        [{"role": "user", "content": [{"type": "text", "text": "x"}] * 1025}],
        "messages[0].content",
        "too_many_items",
    ),
    "very many images": ([image("http://a/b.png")] * 33, "messages", "too_many_items"),
}


@pytest.mark.parametrize(("messages", "param", "code"), BAD.values(), ids=BAD)
def test_what_is_wrong_with_messages_is_named(messages, param, code) -> None:
    with pytest.raises(BadInput) as refused:
        messages_in(messages)
    assert (refused.value.param, refused.value.code) == (param, code), refused.value.message
    assert len(refused.value.message) < 600


@pytest.mark.parametrize("model", ["chat", "remote"])
async def test_a_tool_result_without_a_call_is_a_400(many, model) -> None:
    response = await many.chat(model=model, messages=[USER, result("1")])
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "tool_result_without_call")
    assert "a tool result without a call" in error["message"]


async def test_ten_thousand_messages_are_a_400_that_says_how_many_are_read(edge) -> None:
    error = (await edge.chat(messages=[USER] * 10_000)).json()["error"]
    assert error["message"] == "10000 messages; at most 4096 are read."


GOOD: dict[str, tuple[list[Any], list[Any]]] = {
    "developer is system": (
        [{"role": "developer", "content": "Be brief."}],
        [{"role": "system", "content": "Be brief."}],
    ),
    "parts of text are one": (
        [{"role": "system", "content": [HELLO, HELLO]}],
        [{"role": "system", "content": "HelloHello"}],
    ),
    "an empty part says nothing": (
        [{"role": "user", "content": [{"type": "text", "text": ""}, HELLO]}],
        [{"role": "user", "content": "Hello"}],
    ),
    "a name is kept": ([{**USER, "name": "Ann"}], [{**USER, "name": "Ann"}]),
    "calls with their results": (
        [USER, called("1", "2"), result("2"), result("1"), USER],
        [USER, called("1", "2"), result("2"), result("1"), USER],
    ),
    "calls in turn": ([called("1"), result("1"), called("1"), result("1")],) * 2,
    "calls with text": ([called("1", content="Let me see."), result("1")],) * 2,
    "a result in parts": ([called("1"), result("1", [HELLO])], [called("1"), result("1", "Hello")]),
    "a refusal sent back": (
        [{"role": "assistant", "content": None, "refusal": "No."}],
        [{"role": "assistant", "content": "No."}],
    ),
    "a refusal as a part": (
        [{"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}],
        [{"role": "assistant", "content": "No."}],
    ),
    "what openai-python sends back of an answer": (
        [{"role": "assistant", "content": "Hi", "refusal": None, "annotations": [], "audio": None, "tool_calls": None}],
        [{"role": "assistant", "content": "Hi"}],
    ),
    "what openai-python's helpers send back of a call": (
        [
            call(index=0, function={"name": "add", "arguments": "", "parsed_arguments": {}}) | {"parsed": None},
            result("1"),
        ],
        [call() | {"content": None}, result("1")],
    ),
    "thoughts are left out": (
        [{"role": "assistant", "content": "4", "reasoning_content": "Let me see."}],
        [{"role": "assistant", "content": "4"}],
    ),
    "an image elsewhere": ([image("https://a/b.png", detail="low")],) * 2,
    "an image inline": ([image("data:image/webp;base64,aGk=")],) * 2,
}


@pytest.mark.parametrize(("messages", "read"), GOOD.values(), ids=GOOD)
def test_messages_come_out_in_openais_shape(messages, read) -> None:
    assert messages_in(messages) == read
