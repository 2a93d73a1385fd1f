"""The items of a response's input, read as messages or refused by their place."""

from typing import Any

import pytest

from zooserve.errors import BadInput, TooManyItems, Unsupported
from zooserve_router.endpoints.responses.input import input_in

CALL = {"type": "function_call", "call_id": "call_a", "name": "weather", "arguments": '{"city":"Bern"}'}
OTHER = {"type": "function_call", "call_id": "call_b", "name": "time", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_a", "output": "sunny"}
USER = {"role": "user", "content": "Hi"}


def tool_call(call: dict[str, Any]) -> dict[str, Any]:
    function = {"name": call["name"], "arguments": call["arguments"]}
    return {"id": call["call_id"], "type": "function", "function": function}


def test_a_string_is_what_the_user_says() -> None:
    assert input_in("Hi").messages == ({"role": "user", "content": "Hi"},)


def test_instructions_come_before_everything_else() -> None:
    read = input_in([USER], "Be brief.")
    assert [message["role"] for message in read.messages] == ["system", "user"]
    assert read.origins == ("instructions", "input[0]")


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"role": "developer", "content": "Be kind."}, {"role": "system", "content": "Be kind."}),
        ({"role": "system", "content": "Be kind.", "type": "message"}, {"role": "system", "content": "Be kind."}),
        (
            {"role": "user", "content": [{"type": "input_text", "text": "H"}, {"type": "input_text", "text": "i"}]},
            {"role": "user", "content": "Hi"},
        ),
        (
            {
                "type": "message",
                "id": "msg_1",
                "status": "completed",
                "role": "assistant",
                "phase": None,
                "content": [{"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}],
            },
            {"role": "assistant", "content": "Hello"},
        ),
        (
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "I will not."}]},
            {"role": "assistant", "content": "I will not."},
        ),
        ({"role": "assistant", "content": ""}, {"role": "assistant", "content": ""}),
    ],
    ids=["developer", "typed", "parts", "as answered", "refusal", "silence"],
)
def test_messages_come_in_several_forms(item, message) -> None:
    assert input_in([item]).messages == (message,)


def test_a_call_its_output_and_what_follows_are_a_turn_of_each_speaker() -> None:
    read = input_in([USER, CALL, OUTPUT, {"role": "assistant", "content": "It is sunny."}, USER])
    assert read.messages == (
        USER,
        {"role": "assistant", "content": None, "tool_calls": [tool_call(CALL)]},
        {"role": "tool", "tool_call_id": "call_a", "content": "sunny"},
        {"role": "assistant", "content": "It is sunny."},
        USER,
    )
    assert read.origins == tuple(f"input[{index}]" for index in range(5))


def test_text_and_calls_of_one_turn_are_one_message() -> None:
    said = {"role": "assistant", "content": "Let me see."}
    read = input_in([said, CALL, OTHER, OUTPUT, {**OUTPUT, "call_id": "call_b"}])
    assert read.messages[0] == {**said, "tool_calls": [tool_call(CALL), tool_call(OTHER)]}
    assert [message["role"] for message in read.messages] == ["assistant", "tool", "tool"]


def test_a_second_round_of_calls_is_a_message_of_its_own() -> None:
    read = input_in([CALL, OUTPUT, OTHER, {**OUTPUT, "call_id": "call_b"}])
    assert [message["role"] for message in read.messages] == ["assistant", "tool", "assistant", "tool"]


def test_a_call_while_another_is_unanswered_is_of_the_same_turn() -> None:
    read = input_in([CALL, {"role": "assistant", "content": "And"}, OTHER, OUTPUT, {**OUTPUT, "call_id": "call_b"}])
    assert read.messages[0]["content"] == "And"
    assert read.messages[0]["tool_calls"] == [tool_call(CALL), tool_call(OTHER)]


def test_an_output_may_be_parts_or_nothing() -> None:
    parts = [{"type": "input_text", "text": "sun"}, {"type": "input_text", "text": "ny"}]
    assert input_in([CALL, {**OUTPUT, "output": parts}]).messages[1]["content"] == "sunny"
    assert input_in([CALL, {**OUTPUT, "output": ""}]).messages[1]["content"] == ""


def test_reasoning_is_left_out() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc", "status": None}
    assert input_in([USER, reasoning, CALL, OUTPUT]).messages == input_in([USER, CALL, OUTPUT]).messages


BAD: dict[str, tuple[Any, str, str]] = {
    "a number": (7, "input", "invalid_type"),
    "an object": (USER, "input", "invalid_type"),
    "empty text": ("", "input", "invalid_value"),
    "no items": ([], "input", "empty_array"),
    "a NUL": ("a\0b", "input", "invalid_value"),
    "an item that is text": (["Hi"], "input[0]", "invalid_type"),
    "an item that is null": ([USER, None], "input[1]", "invalid_type"),
    "an item of no kind": ([{}], "input[0].type", "invalid_value"),
    "an item of an unknown kind": ([{"type": "telepathy"}], "input[0].type", "invalid_value"),
    "a hosted tool's item": ([{"type": "web_search_call", "id": "ws_1"}], "input[0].type", "invalid_value"),
    "a kind that is a number": ([{"type": 7}], "input[0].type", "invalid_type"),
    "a reference": ([{"type": "item_reference", "id": "msg_1"}], "input[0]", "item_not_found"),
    "a reference by id alone": ([{"id": "msg_1"}], "input[0]", "item_not_found"),
    "an unknown status": ([{**USER, "status": "odd"}], "input[0].status", "invalid_value"),
    "a role of chat": ([{"role": "tool", "content": "x"}], "input[0].role", "invalid_value"),
    "a role that is a list": ([{"role": ["user"], "content": "x"}], "input[0].role", "invalid_value"),
    "a message of no role": ([{"type": "message", "content": "x"}], "input[0].role", "missing_required_parameter"),
    "a message of no content": ([{"role": "user"}], "input[0].content", "missing_required_parameter"),
    "content that is a number": ([{"role": "user", "content": 7}], "input[0].content", "invalid_type"),
    "no parts": ([{"role": "user", "content": []}], "input[0].content", "empty_array"),
    "a part that is text": ([{"role": "user", "content": ["Hi"]}], "input[0].content[0]", "invalid_type"),
    "a part of no kind": (
        [{"role": "user", "content": [{"text": "Hi"}]}],
        "input[0].content[0].type",
        "missing_required_parameter",
    ),
    "a part of the other speaker": (
        [{"role": "assistant", "content": [{"type": "input_text", "text": "Hi"}]}],
        "input[0].content[0].type",
        "invalid_value",
    ),
    "an image": (
        [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}],
        "input[0].content[0].type",
        "unsupported_parameter",
    ),
    "a part without text": (
        [{"role": "user", "content": [{"type": "input_text"}]}],
        "input[0].content[0].text",
        "missing_required_parameter",
    ),
    "an unknown field of a part": (
        [{"role": "user", "content": [{"type": "input_text", "text": "Hi", "colour": 1}]}],
        "input[0].content[0].colour",
        "unknown_parameter",
    ),
    "an unknown field of a message": ([{**USER, "colour": 1}], "input[0].colour", "unknown_parameter"),
    "a call without arguments": (
        [{"type": "function_call", "call_id": "a", "name": "f"}],
        "input[0].arguments",
        "missing_required_parameter",
    ),
    "arguments that are an object": ([{**CALL, "arguments": {}}], "input[0].arguments", "invalid_type"),
    "a call of no name": ([{**CALL, "name": ""}], "input[0].name", "invalid_value"),
    "a call of an odd name": ([{**CALL, "name": "two words"}], "input[0].name", "invalid_value"),
    "a call without an id": ([{**CALL, "call_id": None}], "input[0].call_id", "missing_required_parameter"),
    "a call in a namespace": ([{**CALL, "namespace": "n"}], "input[0].namespace", "unsupported_parameter"),
    "two calls of one id": ([CALL, CALL], "input[1].call_id", "duplicate_call_id"),
    "a call without its output": ([USER, CALL], "input[1]", "tool_call_without_result"),
    "a call and then the user": ([CALL, USER, OUTPUT], "input[0]", "tool_call_without_result"),
    "an output without its call": ([USER, OUTPUT], "input[1].call_id", "tool_result_without_call"),
    "an output before its call": ([OUTPUT, CALL], "input[0].call_id", "tool_result_without_call"),
    "two outputs of one call": ([CALL, OUTPUT, OUTPUT], "input[2].call_id", "duplicate_tool_result"),
    "an output of nothing": ([CALL, {**OUTPUT, "output": None}], "input[1].output", "missing_required_parameter"),
    "an output that is a number": ([CALL, {**OUTPUT, "output": 7}], "input[1].output", "invalid_type"),
    "an output with an image": (
        [CALL, {**OUTPUT, "output": [{"type": "input_image", "file_id": "f"}]}],
        "input[1].output[0].type",
        "unsupported_parameter",
    ),
    "reasoning that is text": ([{"type": "reasoning", "summary": "Hm"}], "input[0].summary", "invalid_type"),
}


@pytest.mark.parametrize(("value", "param", "code"), BAD.values(), ids=BAD)
def test_bad_input_is_refused_by_its_place(value, param, code) -> None:
    with pytest.raises(BadInput) as refused:
        input_in(value)
    assert (refused.value.param, refused.value.code) == (param, code)


def test_more_items_than_are_read_are_counted() -> None:
    with pytest.raises(TooManyItems, match="4097 items"):
        input_in([USER] * 4097)


def test_what_is_stored_nowhere_is_unsupported_rather_than_wrong() -> None:
    with pytest.raises(Unsupported, match="Send the item itself"):
        input_in([{"type": "item_reference", "id": "msg_1"}])
