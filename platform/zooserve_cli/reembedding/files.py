"""Rows of JSONL and Parquet files, each a mapping: the text, perhaps an id, and everything else as payload."""

import base64
import datetime
import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from zooserve.errors import BadInput, JobRefused
from zooserve.sdk.chunks import Passage, passages, point_id
from zooserve_cli.reembedding.job import FileStamp
from zooserve_cli.reembedding.rows import LONGEST_ROW_BYTES, DeadLetter, Excerpt, Row, fault_of_nesting, fault_of_text
from zooserve_cli.reembedding.sources import Page

__all__ = ["FileSource", "SeenIds", "stamps"]

_JSONL = (".jsonl", ".ndjson")
_PARQUET = (".parquet", ".pq")
_SUFFIXES = (*_JSONL, *_PARQUET)
_PAGE_BYTES = 4 << 20
_READ_BYTES = 1 << 20
_EXCERPT_BYTES = 1 << 16
_FEW_ROWS = 16
"""Of Parquet, decoded together: one at a time takes 130 us each, 16 take 11, 256 take 8 (rows of 800 bytes)."""

Cell = tuple[Any, int, int, int]
"""What a row says, where the next one begins, its number from 1 on, and its bytes."""


def stamps(paths: Iterable[Path]) -> tuple[FileStamp, ...]:
    """The files meant, of folders all below them in the order of their names; each once, whatever it is called.

    Raises JobRefused if there are none.
    """
    files = _each_once(file for path in paths for file in _files(path))
    if not files:
        raise JobRefused(f"There is no file to read: --from takes {', '.join(_SUFFIXES)}, or a folder with such files.")
    return tuple(
        FileStamp(path=str(file), bytes=s.st_size, modified_ns=s.st_mtime_ns) for file in files for s in [file.stat()]
    )


def _each_once(files: Iterable[Path]) -> list[Path]:
    """By the first of its names; a link's is another one of the same file."""
    found: dict[tuple[int, int], Path] = {}
    for file in files:
        stat = file.stat()
        found.setdefault((stat.st_dev, stat.st_ino), file)
    return list(found.values())


def _files(path: Path) -> list[Path]:
    whole = path.expanduser().resolve()
    if whole.is_dir():
        return sorted(file for file in whole.rglob("*") if file.suffix.lower() in _SUFFIXES and file.is_file())
    if not whole.is_file():
        why = "is no file: a pipe cannot be read twice" if whole.exists() else "is not there"
        raise JobRefused(f"{path} {why}, so nothing can be read from it.")
    if whole.suffix.lower() not in _SUFFIXES:
        raise JobRefused(
            f"{path} is of no known kind: --from takes {', '.join(_SUFFIXES)}, or a folder with such files."
        )
    return [whole]


class FileSource:
    """Files, one after the other. A cursor is [file, byte or row, line]."""

    def __init__(self, files: Sequence[FileStamp], text_field: str, id_field: str, rows: int) -> None:
        self._files = [Path(file.path) for file in files]
        self._text_field = text_field
        self._id_field = id_field
        self._rows = rows

    def count(self) -> int:
        """Lines and rows, blank lines among them."""
        return sum(_lines(file) if _is_jsonl(file) else _parquet_rows(file) for file in self._files)

    def pages(self, cursor: Any) -> Iterator[Page]:
        """Pages of `rows` rows at most, or 4 MiB; none reaches over the end of a file."""
        first, place, line = cursor or (0, 0, 0)
        for number in range(first, len(self._files)):
            last = number == len(self._files) - 1
            yield from self._pages_of(number, place, line, last=last)
            place = line = 0

    def _pages_of(self, number: int, place: int, line: int, *, last: bool) -> Iterator[Page]:
        """Of one file; the cursor of its last page is the next file's beginning."""
        path = self._files[number]
        read = _jsonl_rows(path, place, line) if _is_jsonl(path) else _parquet_cells(path, place)
        page, held = Page(None), 0
        full: Page | None = None
        for values, place, line, size in read:
            if full is not None:
                yield full
                full = None
            page.add(self._item(values, f"{path}:{line}"))
            held += size
            if len(page.rows) + len(page.dead) >= self._rows or held >= _PAGE_BYTES:
                page.cursor = [number, place, line]
                full, page, held = page, Page(None), 0
        if full is not None and not page.rows and not page.dead:
            page = full
        elif full is not None:
            yield full
        page.cursor = None if last else [number + 1, 0, 0]
        yield page

    def _item(self, values: Any, position: str) -> Row | DeadLetter:
        if isinstance(values, DeadLetter):
            return values
        if not isinstance(values, Mapping):
            return DeadLetter(
                "no mapping",
                f"a row is a mapping of names to values, not {type(values).__name__}",
                position,
                None,
                values,
            )
        if (deep := fault_of_nesting(values)) is not None:
            return DeadLetter(*deep, position, None, values)
        given = values.get(self._id_field)
        try:
            point = None if given is None else point_id(given)
        except BadInput as exc:
            return DeadLetter("no usable id", str(exc), position, None, values)
        fault = fault_of_text(values, self._text_field)
        if fault is not None:
            return DeadLetter(*fault, position, point, values)
        return self._row(values, point, position)

    def _row(self, values: Mapping[str, Any], point: int | str | None, position: str) -> Row | DeadLetter:
        text = values[self._text_field]
        made = next(passage for passage in passages([text]) if isinstance(passage, Passage))
        rest = {key: value for key, value in values.items() if key not in (self._text_field, self._id_field)}
        if point is not None:
            rest["id"] = values[self._id_field]
        try:
            payload = json.loads(
                json.dumps({**rest, **made.payload}, allow_nan=False, default=_as_text, ensure_ascii=False).encode()
            )
        except (TypeError, ValueError) as exc:
            return DeadLetter("payload that is no JSON", f"{exc}", position, point, values)
        return Row(made.point if point is None else point, text, payload, position)


def _as_text(value: Any) -> Any:
    """Of Parquet's types those that have a usual spelling. Raises TypeError for the others."""
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    raise TypeError(f"a value of type {type(value).__name__} cannot be a payload")


def _is_jsonl(path: Path) -> bool:
    return path.suffix.lower() in _JSONL


def _lines(path: Path) -> int:
    with path.open("rb") as file:
        count, last = 0, b"\n"
        while block := file.read(_READ_BYTES):
            count += block.count(b"\n")
            last = block[-1:]
        return count + (last != b"\n")


def _jsonl_rows(path: Path, place: int, line: int) -> Iterator[Cell]:
    """Blank lines are passed by; places are bytes. No more of a line is held than one may have."""
    with path.open("rb") as file:
        file.seek(place)
        while raw := file.readline(LONGEST_ROW_BYTES + 1):
            line += 1
            position = f"{path}:{line}"
            if len(raw) > LONGEST_ROW_BYTES and not raw.endswith(b"\n"):
                letter = _passed_by(file, raw, position)
                place = file.tell()
                yield letter, place, line, _EXCERPT_BYTES
                continue
            place += len(raw)
            if raw.strip():
                yield _parsed(raw.rstrip(b"\r\n"), position), place, line, len(raw)


def _passed_by(file: BinaryIO, beginning: bytes, position: str) -> DeadLetter:
    """A line that is too long, read to its end and let go."""
    size, hashed = len(beginning), hashlib.sha256(beginning)
    while piece := file.readline(_READ_BYTES):
        size += len(piece)
        hashed.update(piece)
        if piece.endswith(b"\n"):
            break
    excerpt = Excerpt(beginning[:_EXCERPT_BYTES], size, hashed.hexdigest()[:16])
    return _too_long("line", excerpt, position)


def _too_long(kind: str, excerpt: Excerpt, position: str) -> DeadLetter:
    detail = f"the {kind} has {excerpt.size:,} bytes; at most {LONGEST_ROW_BYTES:,} are read"
    return DeadLetter("too long", detail, position, None, excerpt)


def _parsed(raw: bytes, position: str) -> Any:
    try:
        return json.loads(raw.decode("utf-8-sig" if position.endswith(":1") else "utf-8"))
    except UnicodeDecodeError as exc:
        return DeadLetter("not UTF-8", f"byte {exc.start} of the line: {exc.reason}", position, None, raw)
    except (ValueError, RecursionError) as exc:
        return DeadLetter("no JSON", str(exc), position, None, raw)


@contextmanager
def _parquet(path: Path) -> Iterator[Any]:
    import pyarrow
    import pyarrow.parquet

    try:
        # Left out, whole column chunks are read ahead.
        with pyarrow.parquet.ParquetFile(path, buffer_size=_READ_BYTES, pre_buffer=False) as file:
            yield file
    except (pyarrow.ArrowInvalid, pyarrow.ArrowIOError) as exc:
        raise JobRefused(f"{path} is no Parquet file, or a damaged one: {exc}") from exc


def _parquet_rows(path: Path) -> int:
    with _parquet(path) as file:
        return int(file.metadata.num_rows)


def _parquet_cells(path: Path, place: int) -> Iterator[Cell]:
    """Places are rows. Row groups before `place` are not read."""
    with _parquet(path) as file:
        first = 0
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if first + rows > place:
                yield from _group_cells(path, file, group, first, place)
            first += rows


def _group_cells(path: Path, file: Any, group: int, first: int, place: int) -> Iterator[Cell]:
    number = first
    for batch in file.iter_batches(batch_size=_rows_at_once(file.metadata.row_group(group)), row_groups=[group]):
        for at in range(batch.num_rows):
            number += 1
            if number > place:
                size = batch.slice(at, 1).nbytes
                yield _cells(batch, at, size, f"{path}:{number}"), number, number, size


def _rows_at_once(group: Any) -> int:
    """As many as a page holds of them, were all of one length; few, since they are not."""
    mean_bytes = group.total_byte_size // max(1, group.num_rows)
    return int(max(1, min(_FEW_ROWS, _PAGE_BYTES // max(1, mean_bytes))))


def _cells(batch: Any, at: int, size: int, position: str) -> Any:
    """One row as a mapping; a text that is no UTF-8, or a date that Python has not, makes a dead letter of it."""
    if size > LONGEST_ROW_BYTES:
        return _too_long("row", Excerpt(b"", size, ""), position)
    values: dict[str, Any] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            values[name] = column[at].as_py()
        except UnicodeDecodeError as exc:
            raw = exc.object
            return DeadLetter("not UTF-8", f"{name!r}, byte {exc.start}: {exc.reason}", position, None, bytes(raw))
        except (ValueError, OverflowError) as exc:  # a date before year 1 or after 9999
            return DeadLetter("payload that is no JSON", f"{name!r}: {exc}", position, None, str(column[at : at + 1]))
    return {name: _bytes_told(value) for name, value in values.items()}


def _bytes_told(value: Any) -> Any:
    """Raw bytes cannot be payload, nor JSON of a dead letter."""
    return {"base64": base64.b64encode(value).decode("ascii")} if isinstance(value, bytes) else value


class SeenIds:
    """Which ids a job has read from files, on disk: the first row of an id counts, whatever came between."""

    def __init__(self, path: Path, parts: int) -> None:
        """`parts` is how many parts are in the ledger: what later ones noted was not finished."""
        self._database = sqlite3.connect(path)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("CREATE TABLE IF NOT EXISTS ids (id TEXT PRIMARY KEY, part INTEGER) WITHOUT ROWID")
        self._database.execute("DELETE FROM ids WHERE part >= ?", (parts,))
        self._database.commit()

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    def separate(self, page: Page, part: int) -> None:
        """Take the rows of the page whose id was read before out of it, as dead letters."""
        fresh = []
        with closing(self._database.cursor()) as cursor:
            for row in page.rows:
                if cursor.execute("INSERT OR IGNORE INTO ids VALUES (?, ?)", (repr(row.point), part)).rowcount:
                    fresh.append(row)
                else:
                    page.dead.append(row.letter("duplicate id", f"an earlier row has the id {row.point!r}"))
        self._database.commit()
        page.rows = fresh
