import pytest
from hypothesis import given
from hypothesis import strategies as st

from zooserve_ensembles.texts import MAX_CHARACTERS, TextUnreadable, read_texts


@given(st.lists(st.text(max_size=50)))
def test_every_valid_text_comes_through_unchanged(texts: list[str]) -> None:
    assert read_texts([text.encode() for text in texts]) == texts
    assert read_texts(texts) == texts


def test_text_that_no_model_reads_is_cut() -> None:
    assert read_texts([b"a" * (MAX_CHARACTERS + 1)]) == ["a" * MAX_CHARACTERS]


@pytest.mark.parametrize("raw", [b"\xff", b"abc\xc3", b"\xed\xa0\x80"])
def test_bytes_that_are_not_utf8_are_refused_by_row(raw: bytes) -> None:
    with pytest.raises(TextUnreadable, match=r"text 1 is not UTF-8: .* at byte \d"):
        read_texts([b"good", raw])
