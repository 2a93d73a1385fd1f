"""Rows of files: every row is read once, good or dead, wherever reading began."""

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from zooserve.errors import JobRefused
from zooserve_cli.reembedding.files import FileSource, SeenIds, stamps
from zooserve_cli.reembedding.rows import DeadLetter, Row
from zooserve_cli.reembedding.sources import Page

BAD = {
    b'{"id": 100}': "no text",
    b'{"id": 101, "text": null}': "no text",
    b'{"id": 102, "text": 5}': "text of another type",
    b'{"id": 103, "text": ""}': "empty text",
    b'{"id": 104, "text": "caf\xe9"}': "not UTF-8",
    b'{"id": 105, "text": "\\ud800"}': "not UTF-8",
    b"not json": "no JSON",
    b"[1, 2]": "no mapping",
    b'{"id": -4, "text": "x"}': "no usable id",
    b'{"id": 1.5, "text": "x"}': "no usable id",
    b'{"id": true, "text": "x"}': "no usable id",
    b'{"id": 106, "text": "x", "f": NaN}': "payload that is no JSON",
    b'{"id": 107, "text": "' + b"word " * 300_000 + b'"}': "too long",
}


def good(number: int) -> bytes:
    return json.dumps({"id": number, "text": f"row {number}", "nested": {"list": [1, 1.0, None]}}).encode()


def source(*paths: Path, rows: int = 7) -> FileSource:
    return FileSource(stamps(paths), "text", "id", rows)


def items(pages: Any) -> list[Row | DeadLetter]:
    return [item for page in pages for item in (*page.rows, *page.dead)]


def jsonl(folder: Path, name: str, lines: list[bytes]) -> Path:
    path = folder / name
    path.write_bytes(b"\n".join(lines))
    return path


@pytest.mark.parametrize("line", BAD, ids=lambda line: line[:30].decode(errors="replace"))
def test_a_bad_line_is_a_dead_letter_with_its_reason_and_place(tmp_path: Path, line: bytes) -> None:
    path = jsonl(tmp_path, "a.jsonl", [good(1), line, good(2)])
    (page,) = source(path).pages(None)
    assert [row.point for row in page.rows] == [1, 2]
    (letter,) = page.dead
    assert letter.reason == BAD[line]
    assert letter.position == f"{path}:2"
    assert json.loads(letter.as_json())["reason"] == BAD[line]


def test_a_letter_of_a_long_row_stays_short(tmp_path: Path) -> None:
    path = jsonl(tmp_path, "a.jsonl", [b'{"id": 1, "text": "' + b"x" * 3_000_000 + b'"}'])
    (page,) = source(path).pages(None)
    assert len(page.dead[0].as_json()) < 1000


def test_everything_else_of_a_row_is_payload_and_types_stay(tmp_path: Path) -> None:
    (page,) = source(jsonl(tmp_path, "a.jsonl", [good(7)])).pages(None)
    payload = page.rows[0].payload
    assert payload["nested"] == {"list": [1, 1.0, None]}
    assert [type(value) for value in payload["nested"]["list"]] == [int, float, type(None)]
    assert payload["text"] == "row 7"
    assert len(payload["sha256"]) == 64
    assert payload["id"] == 7


def test_ids_that_are_texts_and_missing_ones_become_uuids_always_the_same(tmp_path: Path) -> None:
    path = jsonl(tmp_path, "a.jsonl", [b'{"id": "page-7", "text": "x"}', b'{"text": "y"}'])
    first, second = (items(source(path).pages(None)) for _ in range(2))
    assert [item.point for item in first] == [item.point for item in second]
    assert all(isinstance(item.point, str) and len(item.point) == 36 for item in first)


@pytest.mark.parametrize("count", [0, 1, 6, 7, 8, 14, 30])
def test_reading_on_from_any_page_reads_the_rest_and_nothing_twice(tmp_path: Path, count: int) -> None:
    paths = [
        jsonl(tmp_path, "a.jsonl", [good(number) for number in range(count)]),
        jsonl(tmp_path, "b.jsonl", [b"", *(good(1000 + number) for number in range(9)), b"oops"]),
    ]
    pages = list(source(*paths).pages(None))
    assert pages[-1].cursor is None
    whole = items(pages)
    assert len(whole) == count + 10
    for number, page in enumerate(pages[:-1]):
        rest = items(source(*paths).pages(json.loads(json.dumps(page.cursor))))
        assert rest == items(pages[number + 1 :])


def test_parquet_is_read_on_in_the_middle_of_a_row_group(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    table = pyarrow.table({"id": list(range(50)), "text": [f"row {n}" if n % 9 else None for n in range(50)]})
    pyarrow.parquet.write_table(table, path, row_group_size=20)
    pages = list(source(path).pages(None))
    assert [item.point for item in items(pages) if isinstance(item, Row)] == [n for n in range(50) if n % 9]
    assert {item.point for item in items(pages)} == set(range(50))
    assert source(path).count() == 50
    for number, page in enumerate(pages[:-1]):
        assert items(source(path).pages(page.cursor)) == items(pages[number + 1 :])
    assert pages[1].dead[0].position == f"{path}:10"


def test_parquet_texts_that_are_no_utf8_are_dead_letters(tmp_path: Path) -> None:
    broken = pyarrow.array([b"good", b"caf\xe9"], pyarrow.binary())
    column = pyarrow.Array.from_buffers(pyarrow.string(), 2, broken.buffers())
    pyarrow.parquet.write_table(pyarrow.table({"id": [1, 2], "text": column}), tmp_path / "a.parquet")
    (page,) = source(tmp_path / "a.parquet").pages(None)
    assert [row.point for row in page.rows] == [1]
    assert page.dead[0].reason == "not UTF-8"


def test_parquet_dates_that_python_has_not_are_dead_letters(tmp_path: Path) -> None:
    days = pyarrow.array([1, 2**31 - 1], pyarrow.date32())
    moments = pyarrow.array([2**62, 1], pyarrow.timestamp("us"))
    for name, column in (("days", days), ("moments", moments)):
        pyarrow.parquet.write_table(pyarrow.table({"text": ["a", "b"], name: column}), tmp_path / f"{name}.parquet")
        (page,) = source(tmp_path / f"{name}.parquet").pages(None)
        (letter,) = page.dead
        assert letter.reason == "payload that is no JSON"
        assert name in letter.as_json()
        assert len(page.rows) == 1


def test_a_folder_is_all_its_files_in_order_and_others_are_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    jsonl(tmp_path / "below", "z.jsonl", [good(2)])
    jsonl(tmp_path, "a.ndjson", [good(1)])
    (tmp_path / "notes.txt").write_text("no rows")
    assert [row.point for row in items(source(tmp_path).pages(None))] == [1, 2]


def test_files_that_are_none_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no rows")
    with pytest.raises(JobRefused, match=r"notes\.txt is of no known kind"):
        stamps([tmp_path / "notes.txt"])
    with pytest.raises(JobRefused, match="no file to read"):
        stamps([tmp_path])
    with pytest.raises(JobRefused, match="is not there"):
        stamps([tmp_path / "gone.jsonl"])
    (tmp_path / "broken.parquet").write_bytes(b"no parquet")
    with pytest.raises(JobRefused, match="no Parquet"):
        source(tmp_path / "broken.parquet").count()


def test_of_two_rows_with_one_id_the_first_counts_also_after_a_part_was_read_again(tmp_path: Path) -> None:
    def page(*points: int) -> Page:
        return Page(None, [Row(point, "x", {"text": "x"}, f"a:{point}") for point in points])

    seen = SeenIds(tmp_path / "ids", parts=0)
    first, second = page(1, 2, 1), page(2, 3)
    seen.separate(first, 0)
    seen.separate(second, 1)
    seen.close()
    assert [row.point for row in first.rows] == [1, 2]
    assert [letter.point for letter in first.dead] == [1]
    assert [row.point for row in second.rows] == [3]
    again = SeenIds(tmp_path / "ids", parts=1)  # killed before part 1 was noted in the ledger
    second = page(2, 3)
    again.separate(second, 1)
    again.close()
    assert [row.point for row in second.rows] == [3]
