"""Calls and results of a conversation's past, told in words."""

from typing import Any

import pytest

from zooserve_router.chat.generation import Message
from zooserve_router.chat.tools.families import FAMILIES
from zooserve_router.chat.tools.telling import with_history_told

ASK: Message = {"role": "user", "content": "Is it raining?"}


def calls(*made: tuple[str, str, str], content: str | None = None) -> Message:
    written = [{"id": id, "type": "function", "function": {"name": name, "arguments": text}} for id, name, text in made]
    return {"role": "assistant", "content": content, "tool_calls": written}


def result(id: str, content: str) -> Message:
    return {"role": "tool", "tool_call_id": id, "content": content}


CALL = calls(("a", "weather", '{"city": "Rome"}'))

EXPECTED = {
    "hermes": (
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>',
        '<tool_response>\n{"name": "weather", "content": "sunny"}\n</tool_response>',
    ),
    "llama3": ('{"name": "weather", "parameters": {"city": "Rome"}}', '{"name": "weather", "output": "sunny"}'),
    "mistral": (
        '[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Rome"}}]',
        '[TOOL_RESULTS] {"name": "weather", "content": "sunny"}[/TOOL_RESULTS]',
    ),
}


def told(*messages: Message, family: Any = "hermes") -> list[tuple[str, Any]]:
    return [(message["role"], message["content"]) for message in with_history_told(messages, FAMILIES[family])]


@pytest.mark.parametrize("family", EXPECTED)
def test_each_family_reads_its_own_words(family) -> None:
    call_text, result_text = EXPECTED[family]
    assert told(ASK, CALL, result("a", "sunny"), family=family) == [
        ("user", "Is it raining?"),
        ("assistant", call_text),
        ("user", result_text),
    ]


def test_messages_without_functions_stay_as_they_are() -> None:
    messages = [ASK, {"role": "assistant", "content": "No."}, {"role": "user", "content": [{"type": "image_url"}]}]
    assert with_history_told(messages, FAMILIES["hermes"]) == messages


def test_what_was_said_beside_a_call_stands_before_it() -> None:
    (_, content), *_ = told(calls(("a", "weather", "{}"), content="Let me see."))
    assert content == 'Let me see.\n<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call>'


def test_no_message_keeps_its_calls_as_a_field() -> None:
    assert all("tool_calls" not in message for message in with_history_told([ASK, CALL], FAMILIES["hermes"]))


def test_results_in_a_row_and_what_the_user_says_next_are_one_turn() -> None:
    both = calls(("a", "weather", "{}"), ("b", "clock", "{}"))
    turns = told(ASK, both, result("b", "noon"), result("a", "sunny"), {"role": "user", "content": "So?"})
    assert [role for role, _ in turns] == ["user", "assistant", "user"]
    assert turns[2][1] == (
        '<tool_response>\n{"name": "clock", "content": "noon"}\n</tool_response>\n'
        '<tool_response>\n{"name": "weather", "content": "sunny"}\n</tool_response>\nSo?'
    )


def test_a_result_before_an_answer_is_a_turn_of_its_own() -> None:
    turns = told(ASK, CALL, result("a", "sunny"), {"role": "assistant", "content": "It is sunny."})
    assert [role for role, _ in turns] == ["user", "assistant", "user", "assistant"]


def test_arguments_that_are_no_json_are_told_as_they_were_written() -> None:
    (_, content), *_ = told(calls(("a", "weather", '{"city": ')))
    assert '"arguments": "{\\"city\\": "' in content


def test_a_result_of_an_unknown_call_has_no_name() -> None:
    assert told(result("z", "sunny")) == [("user", '<tool_response>\n{"content": "sunny"}\n</tool_response>')]
