"""The ends of a file: what is read of it, where blanks are, and where there is too little."""

import json
from pathlib import Path

import pytest

from zooserve_ensembles.content import ContentTooShort, Ends

ENDS = Ends(first=6, last=4, block=12, least=3, padding=256)
PAD = 256


def test_a_long_file_is_its_first_and_last_bytes() -> None:
    assert ENDS.of(b"abcdefghijklmnopqrstuvwxyz").tolist() == [*b"abcdef", *b"wxyz"]


def test_what_is_missing_is_padding_at_the_far_side() -> None:
    assert ENDS.of(b"abc").tolist() == [*b"abc", PAD, PAD, PAD, PAD, *b"abc"]


def test_blanks_around_are_left_out_within_a_block() -> None:
    assert ENDS.of(b" \n abcdefgh \t").tolist() == [*b"abcdef", *b"efgh"]
    assert ENDS.of(b"abcd" + b" " * 20).tolist() == [*b"abcd  ", PAD, PAD, PAD, PAD]


@pytest.mark.parametrize("content", [b"", b"ab", b"  ab", b" " * 12 + b"abcdefgh"])
def test_a_file_of_hardly_a_byte_is_refused(content: bytes) -> None:
    with pytest.raises(ContentTooShort, match="bytes besides blanks; 3 are needed"):
        ENDS.of(content)


CONFIG = {
    "beg_size": 1024,
    "mid_size": 0,
    "end_size": 1024,
    "block_size": 4096,
    "min_file_size_for_dl": 8,
    "padding_token": 256,
    "use_inputs_at_offsets": False,
}


def test_the_sizes_are_those_of_the_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert Ends.from_file(tmp_path / "config.json") == Ends(first=1024, last=1024, block=4096, least=8, padding=256)


@pytest.mark.parametrize("other", [{"mid_size": 512}, {"use_inputs_at_offsets": True}])
def test_a_model_that_reads_more_than_the_ends_is_refused(tmp_path: Path, other: dict[str, object]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | other))
    with pytest.raises(ValueError, match="reads more than a file's ends"):
        Ends.from_file(tmp_path / "config.json")
