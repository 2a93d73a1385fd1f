"""The ledger of a re-embedding: whatever a kill leaves of it, what is whole counts, and nothing counts twice."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zooserve.errors import JobRefused
from zooserve_cli.reembedding.ledger import Ledger
from zooserve_cli.reembedding.letters import dead_points
from zooserve_cli.reembedding.rows import DeadLetter, digest


def letter(point: int) -> DeadLetter:
    return DeadLetter("empty text", "'text' is empty", f"docs, point {point}", point, {"text": ""})


def opened(folder: Path) -> Ledger:
    return Ledger(folder / "ledger.jsonl", folder / "dead.jsonl")


def written(folder: Path) -> None:
    """Two parts staged, one of them embedded, a dead letter of each kind."""
    with opened(folder) as ledger:
        ledger.staged(0, 3, [letter(1)], 40, exhausted=False)
        ledger.staged(1, 2, [], None, exhausted=True)
        ledger.embedded(0, 2, [letter(2)])


def test_what_was_done_is_known_after_opening_it_again(tmp_path: Path) -> None:
    written(tmp_path)
    with opened(tmp_path) as ledger:
        standing = ledger.standing
    assert (standing.read, standing.embedded, standing.dead) == (6, 2, 2)
    assert standing.waiting == {1: 2}
    assert standing.exhausted
    assert standing.parts == 2
    assert dead_points(tmp_path / "dead.jsonl") == dict.fromkeys((1, 2), digest({"text": ""}))


def test_parts_that_came_later_do_not_move_the_place_in_the_source(tmp_path: Path) -> None:
    written(tmp_path)
    with opened(tmp_path) as ledger:
        ledger.caught_up(2, 5, [])
    with opened(tmp_path) as ledger:
        assert ledger.standing.exhausted
        assert ledger.standing.waiting == {1: 2, 2: 5}


@given(cut=st.integers(min_value=0, max_value=400), torn=st.booleans())
def test_a_ledger_cut_off_anywhere_is_what_its_whole_lines_say(tmp_path_factory, cut: int, torn: bool) -> None:
    folder = tmp_path_factory.mktemp("ledger")
    written(folder)
    path = folder / "ledger.jsonl"
    kept = path.read_bytes()[:cut]
    path.write_bytes(kept + (b'{"part": 9' if torn and kept.endswith(b"\n") else b""))
    whole = kept.count(b"\n")
    with opened(folder) as ledger:
        assert ledger.standing.parts == min(whole, 2)
        assert ledger.standing.embedded == (2 if whole == 3 else 0)
        assert ledger.standing.dead == (0, 1, 1, 2)[whole]
    letters = [json.loads(line)["id"] for line in (folder / "dead.jsonl").read_text().splitlines()]
    assert letters == [1, 2][: (0, 1, 1, 2)[whole]]


def test_letters_of_a_part_that_is_done_again_are_there_once(tmp_path: Path) -> None:
    written(tmp_path)
    lines = (tmp_path / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "ledger.jsonl").write_bytes(b"".join(lines[:2]))  # killed between the letter and its line
    with opened(tmp_path) as ledger:
        ledger.embedded(0, 2, [letter(2)])
    assert [json.loads(line)["id"] for line in (tmp_path / "dead.jsonl").read_text().splitlines()] == [1, 2]


def test_a_line_damaged_in_the_middle_is_refused_with_its_number(tmp_path: Path) -> None:
    written(tmp_path)
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"part": 1', b'"part": \xff', 1))
    with pytest.raises(JobRefused, match=r"line 2.*--restart"):
        opened(tmp_path)


def test_lost_letters_are_noticed(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "dead.jsonl").write_text("")
    with pytest.raises(JobRefused, match="shorter"):
        opened(tmp_path)
