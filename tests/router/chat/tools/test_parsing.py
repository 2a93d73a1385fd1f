"""An answer of JSON is read the same however it is cut, and as json.loads reads the whole."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zooserve_router.chat.generation import ToolCallPart
from zooserve_router.chat.tools.parsing import AnswerParser, Unreadable

TEXT = st.text(max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(TEXT, JSON, max_size=4)
# A busy machine is no fault of the parser.
at_any_speed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
SPACES = st.sampled_from([None, 1, "\t"])


def parser(**options: Any) -> AnswerParser:
    ids = iter(range(1000))
    return AnswerParser("arguments", lambda: f"call_{next(ids)}", **options)


def pieces_of(draw: Any, text: str) -> list[str]:
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=12)))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def read(text: str, **options: Any) -> tuple[str, dict[int, dict[str, Any]]]:
    return read_pieces([text], **options)


def read_pieces(pieces: list[str], **options: Any) -> tuple[str, dict[int, dict[str, Any]]]:
    """The message, and each call with its id, name and arguments."""
    reading, message = parser(**options), ""
    calls: dict[int, dict[str, Any]] = {}
    for said in (said for piece in pieces for said in reading.feed(piece)):
        if isinstance(said, str):
            message += said
        elif said.index in calls:
            assert said.name is None, "a name is told once"
            assert said.id is None
            calls[said.index]["arguments"] += said.arguments
        else:
            calls[said.index] = {"id": said.id, "name": said.name, "arguments": said.arguments}
    return message, calls


@at_any_speed
@given(st.data(), TEXT, SPACES, st.booleans())
def test_a_message_in_any_pieces_is_what_the_whole_says(data, message, indent, ascii_only) -> None:
    whole = json.dumps({"message": message}, indent=indent, ensure_ascii=ascii_only)
    assert read_pieces(pieces_of(data.draw, whole)) == (message, {})


@at_any_speed
@given(st.data(), st.lists(st.tuples(TEXT, ARGUMENTS), min_size=1, max_size=3), SPACES, st.booleans())
def test_calls_in_any_pieces_are_what_the_whole_says(data, wanted, indent, ascii_only) -> None:
    answer = [{"name": name, "arguments": arguments} for name, arguments in wanted]
    whole = json.dumps(answer if len(answer) > 1 else answer[0], indent=indent, ensure_ascii=ascii_only)
    message, calls = read_pieces(pieces_of(data.draw, whole))
    assert message == ""
    assert [(call["name"], json.loads(call["arguments"])) for call in calls.values()] == wanted
    assert all(call["arguments"] in whole for call in calls.values()), "exactly the characters that were written"
    assert len({call["id"] for call in calls.values()}) == len(wanted)


@at_any_speed
@given(st.data(), JSON, SPACES)
def test_a_message_of_a_schema_of_its_own_comes_out_as_it_is_written(data, value, indent) -> None:
    whole = json.dumps({"message": value}, indent=indent)
    message, _ = read_pieces(pieces_of(data.draw, whole), raw_message=True)
    assert json.loads(message) == value
    assert message in whole


@at_any_speed
@given(st.data(), ARGUMENTS)
def test_an_answer_that_is_cut_off_is_the_beginning_of_the_whole_one(data, arguments) -> None:
    whole = json.dumps({"name": "f", "arguments": arguments})
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    reading = parser()
    reading.feed(cut)
    assert not reading.complete
    _, calls = read(cut)
    if calls:
        assert calls[0]["name"] == "f"
        assert json.dumps(arguments).startswith(calls[0]["arguments"])


def test_the_name_comes_first_and_at_once() -> None:
    reading = parser()
    assert reading.feed('{"name": "weather", ') == [ToolCallPart(0, "", "call_0", "weather")]
    assert reading.feed('"arguments": {"ci') == [ToolCallPart(0, '{"ci')]


def test_arguments_before_the_name_wait_for_it() -> None:
    _, calls = read('{"arguments": {"a": 1}, "name": "f"}')
    assert calls == {0: {"id": "call_0", "name": "f", "arguments": '{"a": 1}'}}


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (r'"\ud83d\ude00"', "\U0001f600"),
        (r'"\ud83d"', "\ufffd"),
        (r'"\ude00x"', "\ufffdx"),
        (r'"\ud83d\n"', "\ufffd\n"),
        (r'"\ud83d\ud83d\ude00"', "\ufffd\U0001f600"),
        (r'"\"\\\/\b\f\n\r\t\u00e9"', '"\\/\b\f\n\r\té'),
    ],
)
def test_escapes_come_out_as_the_characters_they_stand_for(written, said) -> None:
    for size in (1, 2, 100):
        whole = '{"message": ' + written + "}"
        message, _ = read_pieces([whole[at : at + size] for at in range(0, len(whole), size)])
        assert message == said


def test_no_half_of_a_character_is_let_out() -> None:
    reading = parser()
    assert reading.feed('{"message": "a\\ud83d\\ud') == ["a"]
    assert reading.feed('e00"') == ["\U0001f600"]


def test_an_answer_is_complete_at_its_last_brace() -> None:
    reading = parser()
    reading.feed('[{"name": "f", "arguments": {"a": [{}]}}')
    assert not reading.complete
    reading.feed("]\n ")
    assert reading.complete
    assert reading.calls == 1


@pytest.mark.parametrize(
    "text",
    [
        "Sure! ",
        "[]",
        "{}",
        '{"arguments": {}}',
        '{"message": 1}',
        '{"message": "a\nb"}',
        '{"message": "\\x"}',
        '{"message": "\\u12g4"}',
        '{"message": "a"} more',
        '{"other": "a"}',
        '{"name": "f" "arguments": {}}',
        '[{"name": "f", "arguments": {}};',
    ],
)
def test_what_no_schema_of_calls_allows_is_not_guessed_at(text) -> None:
    with pytest.raises(Unreadable):
        read(text)
