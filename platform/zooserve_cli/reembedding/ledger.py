"""What a job has done, a line for each part: the state after any end is the fold of the lines that are whole.

Beside it lie the dead letters. A line of the ledger says how long their file was when it was written, so that what a
kill left behind it is cut off, and the part that wrote it writes it again.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from zooserve.errors import JobRefused
from zooserve_cli.reembedding.rows import DeadLetter

__all__ = ["Ledger", "Standing"]


@dataclass
class Standing:
    """How far a job is."""

    cursor: Any = None
    """Where the source is read on; the source's own."""
    exhausted: bool = False
    """Whether the source was read to its end."""
    parts: int = 0
    """How many parts were begun; the next one's number."""
    waiting: dict[int, int] = field(default_factory=dict)
    """Parts that are staged and not embedded, with their rows."""
    read: int = 0
    """Rows read, the dead ones among them."""
    embedded: int = 0
    """Points written; a point that was written again in a catch-up counts again."""
    dead: int = 0
    letters: int = 0
    """Bytes of the dead letters."""


class Ledger:
    """One job's ledger and dead letters; one process writes them."""

    def __init__(self, path: Path, letters: Path) -> None:
        self.standing = _folded(path)
        _cut(letters, self.standing.letters)
        self._file = path.open("ab")
        self._letters = letters.open("ab")

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *ended: object) -> None:
        """Let go of the files."""
        self._file.close()
        self._letters.close()

    def staged(self, part: int, rows: int, dead: Iterable[DeadLetter], cursor: Any, *, exhausted: bool) -> None:
        """The part's rows lie in its file; `cursor` is where to read on."""
        letters = list(dead)
        line = {"part": part, "staged": rows, "dead": len(letters), "cursor": cursor, "exhausted": exhausted}
        self._write(line, letters)

    def caught_up(self, part: int, rows: int, dead: Iterable[DeadLetter]) -> None:
        """The same of rows that the source gained, or changed, after it was read."""
        letters = list(dead)
        self._write({"part": part, "staged": rows, "dead": len(letters), "again": True}, letters)

    def embedded(self, part: int, points: int, dead: Iterable[DeadLetter]) -> None:
        """The part's points are in the new collection."""
        letters = list(dead)
        self._write({"part": part, "embedded": points, "dead": len(letters)}, letters)

    def _write(self, line: dict[str, Any], letters: list[DeadLetter]) -> None:
        if letters:
            self._letters.write("".join(f"{letter.as_json()}\n" for letter in letters).encode())
            _to_disk(self._letters)
        whole = {**line, "letters": self._letters.tell()}
        self._file.write(json.dumps(whole).encode() + b"\n")
        _to_disk(self._file)
        _take(self.standing, whole)


def _to_disk(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def _cut(letters: Path, size: int) -> None:
    """Take off what was written of parts that did not get into the ledger."""
    letters.touch()
    if letters.stat().st_size < size:
        raise JobRefused(f"{letters} is shorter than it was: begin anew with --restart.")
    os.truncate(letters, size)


def _folded(path: Path) -> Standing:
    """Read the ledger; a last line without an end was torn by a kill, and is cut off."""
    standing = Standing()
    if not path.exists():
        return standing
    whole = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                break
            try:
                _take(standing, json.loads(line))
            except (ValueError, KeyError, TypeError) as exc:
                raise JobRefused(
                    f"{path}, line {number}, is damaged ({exc}): what this job has done cannot be told. Begin anew "
                    "with --restart."
                ) from exc
            whole += len(line)
    os.truncate(path, whole)
    return standing


def _take(standing: Standing, line: dict[str, Any]) -> None:
    part, dead = line["part"], line["dead"]
    if "staged" in line:
        standing.parts = part + 1
        standing.read += line["staged"] + dead
        if line["staged"]:
            standing.waiting[part] = line["staged"]
        if not line.get("again"):
            standing.cursor, standing.exhausted = line["cursor"], line["exhausted"]
    else:
        del standing.waiting[part]
        standing.embedded += line["embedded"]
    standing.dead += dead
    standing.letters = line["letters"]
