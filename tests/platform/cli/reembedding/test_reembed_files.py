"""Rows of files: every row is read once, good or dead, wherever reading began."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from zooserve.errors import JobRefused
from zooserve_cli.reembedding.files import FileSource, SeenIds, stamps
from zooserve_cli.reembedding.rows import LONGEST_ROW_BYTES, DeadLetter, Row, digest
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


def test_a_line_that_is_too_long_is_never_held_and_reading_goes_on_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with path.open("wb") as file:
        file.write(good(1) + b"\n" + b'{"id": 2, "text": "')
        for _ in range(64):
            file.write(b"x" * (1 << 20))
        file.write(b'"}\n' + good(3) + b"\n" + b"[" * (9 << 20))  # and one without an end
    read = source(path, rows=1)
    tracemalloc.start()
    pages = list(read.pages(None))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 << 20
    first, long, second, endless = items(pages)
    assert (first.point, second.point) == (1, 3)
    assert (long.reason, long.position) == ("too long", f"{path}:2")
    said = json.loads(long.as_json())
    assert said["bytes"] == (64 << 20) + 22
    assert len(said["base64"]) < 100_000
    assert "67,108,886 bytes; at most 8,388,608" in said["detail"]
    assert endless.reason == "too long"
    for number, page in enumerate(pages[:-1]):
        assert items(read.pages(page.cursor)) == items(pages[number + 1 :])


def test_lines_of_just_the_longest_length_are_read(tmp_path: Path) -> None:
    for size, reasons in ((LONGEST_ROW_BYTES, []), (LONGEST_ROW_BYTES + 1, ["too long"])):
        line = b'{"text": "a", "more": "' + b"x" * (size - 25) + b'"}'
        assert len(line) == size
        read = items(source(jsonl(tmp_path, "a.jsonl", [line, good(1)])).pages(None))
        assert [item.reason for item in read if isinstance(item, DeadLetter)] == reasons
        assert len(read) == 2


def test_pages_of_long_rows_are_cut_by_their_bytes(tmp_path: Path) -> None:
    texts = ["y" * 700_000 + str(number) for number in range(40)]
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "a.parquet")
    jsonl(tmp_path, "b.jsonl", [json.dumps({"text": text}).encode() for text in texts])
    for name in ("a.parquet", "b.jsonl"):
        pages = list(source(tmp_path / name, rows=256).pages(None))
        assert max(sum(len(row.text) for row in page.rows) for page in pages) < 6 << 20
        assert [row.text for row in items(pages)] == texts


def test_of_parquet_few_rows_are_decoded_at_a_time(tmp_path: Path) -> None:
    texts = ["z" * 1_000_000 + str(number) for number in range(64)]
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(
        pyarrow.table({"text": texts}), path, use_dictionary=False, compression="none", write_batch_size=1
    )
    pool = pyarrow.default_memory_pool()
    before = pool.bytes_allocated()
    held = [pool.bytes_allocated() - before for _ in source(path, rows=2).pages(None)]
    assert max(held) < 16 << 20


def test_a_parquet_row_that_is_too_long_is_a_letter(tmp_path: Path) -> None:
    table = pyarrow.table({"text": ["a", "b", "c"], "picture": [b"", b"p" * (9 << 20), b""]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    first, long, last = items(source(tmp_path / "a.parquet").pages(None))
    assert (first.text, last.text) == ("a", "c")
    assert long.reason == "too long"
    assert json.loads(long.as_json())["bytes"] > 9 << 20


def test_a_file_that_is_named_more_than_once_is_read_once(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    path = jsonl(folder, "a.jsonl", [good(1), good(2)])
    (folder / "soft.jsonl").symlink_to(path)
    (folder / "hard.jsonl").hardlink_to(path)
    (tmp_path / "other").symlink_to(folder)
    spelled = folder / ".." / "rows" / "a.jsonl"
    for paths in (
        [folder],
        [folder, path],
        [path, path],
        [path, spelled],
        [path, folder / "hard.jsonl", tmp_path / "other"],
    ):
        assert [stamp.path for stamp in stamps(paths)] == [str(path)]
        assert source(*paths).count() == 2


@pytest.mark.parametrize("depth", [150, 400, 900])
def test_a_payload_that_is_nested_too_deeply_for_qdrant_is_a_letter(tmp_path: Path, depth: int) -> None:
    deep = b'{"id": 5, "text": "x", "deep": ' + b"[" * depth + b"]" * depth + b"}"
    (page,) = source(jsonl(tmp_path, "a.jsonl", [good(1), deep, good(2)])).pages(None)
    assert [row.point for row in page.rows] == [1, 2]
    assert page.dead[0].reason in ("payload that is no JSON", "no JSON")
    assert json.loads(page.dead[0].as_json())["position"].endswith(":2")
    assert len(digest(page.dead[0].content)) == 16


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
