"""Tokens go out with the text that they write."""

from zooserve_router.chat.generation import TokenLogprob
from zooserve_router.chat.token_gate import TokenGate


def token(text: str) -> TokenLogprob:
    return TokenLogprob(text, -1.0)


def told(*steps: tuple[str, list[str], str]) -> list[list[str]]:
    """What goes out after each step: the text that came in, its tokens, and the text that goes out."""
    gate = TokenGate()
    return [[each.token for each in gate.feed(heard, [*map(token, tokens)], said)] for heard, tokens, said in steps]


def test_without_anything_held_back_tokens_go_as_they_come() -> None:
    assert told(("one ", ["one", " "], "one "), ("two", ["two"], "two")) == [["one", " "], ["two"]]


def test_the_tokens_of_a_stop_string_are_never_told() -> None:
    assert told(("one ", ["one "], "one "), ("ST", ["ST"], ""), ("OP two", ["OP", " two"], "")) == [["one "], [], []]


def test_a_token_that_begins_a_stop_string_is_not_told_either() -> None:
    assert told(("one S", ["one", " S"], "one "), ("TOP", ["TOP"], "")) == [["one"], []]


def test_what_only_looked_like_a_stop_string_is_told_in_its_order() -> None:
    assert told(("ST", ["ST"], ""), ("AY", ["AY"], "STAY")) == [[], ["ST", "AY"]]


def test_text_without_tokens_counts_too() -> None:
    assert told(("one ST", [], "one "), ("AY two", ["AY", " two"], "STAY two")) == [[], ["AY", " two"]]


def test_a_part_of_a_character_goes_with_the_text_before_it() -> None:
    assert told(("one", ["one"], "one"), ("", ["\ufffd"], ""), ("é", ["\ufffd"], "é")) == [
        ["one"],
        ["\ufffd"],
        ["\ufffd"],
    ]


def test_tokens_that_write_nothing_are_told_at_once() -> None:
    assert told(("", ["<|end|>"], "")) == [["<|end|>"]]
