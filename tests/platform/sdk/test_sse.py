"""Server-sent events are read the same however the network cuts them."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zooserve.errors import BackendFailed
from zooserve.sdk import sse
from zooserve.sdk.sse import EventReader, ServerEvent

STREAM = (
    "\ufeff: a comment\r\n"
    "data: one\r\n\r\n"
    "event: named\ndata: twø\n\n"
    "data:no space\rid: 7\r\r"
    "data: first line\ndata: second line\nretry: 5\n\n"
    "event: nothing\n\n"
    ": \n\n"
    'data: {"text": "日本語"}\n\n'
).encode()
TOLD = [
    ServerEvent("one"),
    ServerEvent("twø", "named"),
    ServerEvent("no space"),
    ServerEvent("first line\nsecond line"),
    ServerEvent('{"text": "日本語"}'),
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_chunk_borders_change_nothing(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    reader = EventReader()
    told = [each for at, to in pairwise(edges) for each in reader.feed(STREAM[at:to])]
    assert told + reader.rest() == TOLD


def test_an_event_is_told_as_soon_as_its_blank_line_is_there() -> None:
    reader = EventReader()
    assert reader.feed(b"data: one\n") == []
    assert reader.feed(b"\ndata: tw") == [ServerEvent("one")]
    assert reader.feed(b"o\n\n") == [ServerEvent("two")]
    assert reader.rest() == []


@pytest.mark.parametrize("cut", range(5))
def test_a_byte_order_mark_before_the_first_field_is_left_out_wherever_it_is_cut(cut: int) -> None:
    stream = "\ufeffdata: one\n\n".encode()
    reader = EventReader()
    assert reader.feed(stream[:cut]) + reader.feed(stream[cut:]) == [ServerEvent("one")]


def test_the_last_event_may_lack_its_blank_line() -> None:
    reader = EventReader()
    assert reader.feed(b"data: [DONE]") == []
    assert reader.rest() == [ServerEvent("[DONE]")]


@pytest.mark.parametrize("endless", [b"data: " + b"x" * 64, b"data: xxxxxxxx\n" * 8, b"data\n" * 49])
def test_an_event_without_end_is_given_up(endless: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "_LONGEST_EVENT_BYTES", 48)
    with pytest.raises(BackendFailed, match="more than 48 bytes"):
        EventReader().feed(endless)


def test_many_events_are_no_long_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "_LONGEST_EVENT_BYTES", 48)
    assert len(EventReader().feed(b"data: xxxxxxxx\n\n" * 8)) == 8


def test_a_long_line_is_not_looked_through_again_with_each_of_its_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_through: list[int] = []

    class Counted:
        def split(self, text: bytes) -> list[bytes]:
            looked_through.append(len(text))
            return text.split(b"\n")

    monkeypatch.setattr(sse, "_LINE_END", Counted())
    reader = EventReader()
    chunks = [b"data: ", *[b"x" * 100] * 50, b"\n\n"]
    told = [each for chunk in chunks for each in reader.feed(chunk)]
    assert told == [ServerEvent("x" * 5000)]
    assert sum(looked_through) == sum(map(len, chunks))
