"""Stop strings across pieces of text."""

from hypothesis import given
from hypothesis import strategies as st

from zooserve.leaf.stops import StopScanner

SHORT = st.text(alphabet="abé", max_size=12)
STOPS = st.lists(st.text(alphabet="abé", min_size=1, max_size=4), max_size=4)


def run(pieces: list[str], stops: list[str]) -> tuple[str, str | None]:
    """What went out of a whole stream, and the stop string that ended it."""
    scanner = StopScanner(stops)
    out = ""
    for piece in pieces:
        out += scanner.feed(piece)
        if scanner.matched is not None:
            return out, scanner.matched
    return out + scanner.flush(), None


def test_text_without_stop_strings_passes_at_once() -> None:
    assert StopScanner([]).feed("any text") == "any text"


def test_a_stop_string_over_three_pieces_is_found_and_not_let_out() -> None:
    assert run(["Paris is", " the capi", "tal", " of"], ["the capital"]) == ("Paris is ", "the capital")


def test_a_half_stop_string_is_held_back_until_it_is_clear() -> None:
    scanner = StopScanner(["###"])

    assert [scanner.feed("a#"), scanner.feed("#"), scanner.feed("b")] == ["a", "", "##b"]


def test_what_was_held_back_comes_out_at_the_end() -> None:
    assert run(["wait #", "#"], ["###"]) == ("wait ##", None)


def test_of_two_that_end_together_the_longer_one_is_named() -> None:
    assert run(["say END"], ["END", "y END"]) == ("sa", "y END")


def test_nothing_goes_out_after_a_match() -> None:
    scanner = StopScanner(["x"])
    scanner.feed("ax")

    assert scanner.feed("more") == ""


@given(SHORT, STOPS, st.integers(0, 12), st.integers(0, 12))
def test_how_the_text_is_cut_changes_nothing(text: str, stops: list[str], one: int, two: int) -> None:
    first, second = sorted((one, two))

    assert run([text[:first], text[first:second], text[second:]], stops) == run([text], stops)


@given(SHORT, STOPS)
def test_no_stop_string_is_ever_let_out(text: str, stops: list[str]) -> None:
    out, matched = run(list(text), stops)

    assert not any(stop in out for stop in stops)
    assert text.startswith(out + (matched or ""))
