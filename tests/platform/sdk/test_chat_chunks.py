"""An answer is the same gathered from a stream's chunks and from a whole body."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zooserve.errors import UnreadableAnswer
from zooserve.sdk.chat_chunks import Gathered
from zooserve.sdk.chat_results import Choice, TokenLogprob, ToolCall, Usage

USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def chunk(index: int = 0, finish_reason: str | None = None, logprobs: Any = None, **delta: Any) -> dict[str, Any]:
    choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
    return {"choices": [choice], "usage": None}


def gathered(*chunks: dict[str, Any]) -> Gathered:
    all_of_it = Gathered()
    for each in chunks:
        all_of_it.add(each)
    return all_of_it


@given(st.lists(st.text()))
def test_the_text_is_what_its_parts_say_in_order(parts: list[str]) -> None:
    answer = Gathered()
    assert [answer.add(chunk(content=part)) for part in parts] == parts
    assert answer.text == "".join(parts)


def test_each_of_several_choices_is_gathered_by_itself_and_only_the_first_is_told() -> None:
    answer = gathered(chunk(0, content="a"), chunk(1, content="x"), chunk(0, content="b"))
    assert answer.add(chunk(1, content="y")) == ""
    answer.add(chunk(1, "stop"))
    answer.add(chunk(0, "length"))
    assert [(each.text, each.finish_reason) for each in answer.choices()] == [("ab", "length"), ("xy", "stop")]


def test_calls_come_as_id_and_name_and_then_arguments_in_pieces() -> None:
    first = {"index": 0, "id": "c1", "type": "function", "function": {"name": "weather", "arguments": ""}}
    second = {"index": 1, "id": "c2", "type": "function", "function": {"name": "time", "arguments": "{}"}}
    answer = gathered(
        chunk(role="assistant", content="", refusal=None),
        chunk(tool_calls=[first]),
        chunk(tool_calls=[{"index": 0, "function": {"arguments": '{"city": '}}, second]),
        chunk(tool_calls=[{"index": 0, "function": {"arguments": '"Paris"}'}}]),
        chunk(finish_reason="tool_calls"),
    )
    (choice,) = answer.choices()
    assert choice.tool_calls == (ToolCall("c1", "weather", '{"city": "Paris"}'), ToolCall("c2", "time", "{}"))
    assert choice.tool_calls[0].parsed() == {"city": "Paris"}
    assert choice.message["content"] is None
    assert choice.message["tool_calls"][1]["function"] == {"name": "time", "arguments": "{}"}


def test_a_whole_body_is_gathered_as_one_chunk() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "time", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "refusal": None, "tool_calls": [call, {**call, "id": "c2"}]}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}], "usage": USAGE}
    answer = gathered(body)
    assert [call.id for call in answer.choices()[0].tool_calls] == ["c1", "c2"]
    assert answer.usage == Usage(3, 2, 5)


def test_thoughts_and_a_refusal_are_kept_apart_from_the_text() -> None:
    answer = gathered(chunk(reasoning_content="Hm"), chunk(reasoning_content="m."), chunk(refusal="No."))
    answer.add(chunk(finish_reason="stop"))
    assert answer.choices() == (Choice("", "stop", reasoning="Hmm.", refusal="No."),)


def test_the_usage_has_details_where_the_server_tells_them() -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 2}, "completion_tokens_details": {"reasoning_tokens": 1}}
    answer = gathered({"choices": [], "usage": {**USAGE, **details}})
    assert answer.usage == Usage(3, 2, 5, cached_tokens=2, reasoning_tokens=1)


def test_logprobs_of_a_chat_are_a_list_of_tokens() -> None:
    told = {"token": "Ü", "logprob": -0.5, "bytes": [195, 156], "top_logprobs": [{"token": "U", "logprob": -1.5}]}
    half = {"token": "\ufffd", "logprob": -1.0, "bytes": None, "top_logprobs": []}
    answer = gathered(chunk(content="Ü", logprobs={"content": [told]}), chunk(logprobs={"content": [half]}))
    answer.add(chunk(finish_reason="stop", logprobs={"content": None, "refusal": None}))
    assert answer.choices()[0].logprobs == (
        TokenLogprob("Ü", -0.5, "Ü".encode(), (("U", -1.5),)),
        TokenLogprob("\ufffd", -1.0, None, ()),
    )


def test_logprobs_of_a_completion_are_lists_side_by_side() -> None:
    told = {"tokens": ["a", "b"], "token_logprobs": [-1.0, -2.0], "top_logprobs": [{"a": -1.0}, None]}
    answer = gathered({"choices": [{"index": 0, "text": "ab", "finish_reason": "length", "logprobs": told}]})
    assert answer.choices()[0].logprobs == (
        TokenLogprob("a", -1.0, None, (("a", -1.0),)),
        TokenLogprob("b", -2.0, None, ()),
    )


@pytest.mark.parametrize("chunks", [[], [chunk(content="Pa")], [chunk(0, "stop"), chunk(1, content="x")]])
def test_an_answer_without_its_end_is_never_taken_for_whole(chunks: list[dict[str, Any]]) -> None:
    answer = gathered(*chunks)
    with pytest.raises(ValueError, match="without its end"):
        answer.choices()


@pytest.mark.parametrize(
    "wrong",
    [{}, {"choices": None}, {"choices": ["x"]}, {"choices": [{"delta": {}}]}, {"choices": [], "usage": {"x": 1}}],
)
def test_what_is_no_answer_raises_what_reading_it_raises(wrong: dict[str, Any]) -> None:
    with pytest.raises((AttributeError, KeyError, TypeError, ValueError)):
        Gathered().add(wrong)


@pytest.mark.parametrize("arguments", ["", '{"city": ', "[]", json.dumps("Paris")])
def test_arguments_that_are_no_object_are_said_so(arguments: str) -> None:
    with pytest.raises(UnreadableAnswer, match="call of weather"):
        ToolCall("c1", "weather", arguments).parsed()
