"""Rows as they go through a job: read, written into a part, embedded, stored; and those that cannot be."""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from zooserve.errors import BadInput
from zooserve.sdk.inputs import checked_text

__all__ = [
    "LONGEST_ROW_BYTES",
    "DeadLetter",
    "Excerpt",
    "Row",
    "digest",
    "fault_of_nesting",
    "fault_of_text",
    "read_rows",
    "weight",
    "written_rows",
]

PointId = int | str

_LONGEST_TEXT_BYTES = 1 << 20
"""No model reads so much; the platform would refuse it by its tokens."""
LONGEST_ROW_BYTES = 8 << 20
"""Of a line or a row of a file, payload and all. Qdrant takes 32 MiB in one request."""
_KEPT_BYTES = 1 << 16
"""Of a bad row's own content; of a longer one the letter says where it lies."""
_DEEPEST = 120
"""Lists and mappings in each other. Qdrant reads 128, and a request has four around a payload."""


@dataclass(frozen=True)
class Row:
    """One point to be: its text, payload, and the vectors that are carried over as they are (by name)."""

    point: PointId
    text: str
    payload: dict[str, Any]
    position: str
    """Where it was read: a file and its line or row, or a collection and the point's id."""
    kept: dict[str, Any] = field(default_factory=dict)

    def letter(self, reason: str, detail: str) -> "DeadLetter":
        """What is written of it when it cannot be embedded."""
        return DeadLetter(reason, detail, self.position, self.point, self.payload)


@dataclass(frozen=True)
class Excerpt:
    """What is kept of a row that is too long to be held: its beginning, its size, and the digest of all of it."""

    beginning: bytes
    size: int
    digest: str


@dataclass(frozen=True)
class DeadLetter:
    """A row that is not in the new collection, and why."""

    reason: str
    """One of a few words: no text, text of another type, empty text, too long, duplicate id, not UTF-8 and so on."""
    detail: str
    position: str
    point: PointId | None
    content: Any = None
    """The row as it was read; bytes or an Excerpt where it could not be read as text."""

    def as_json(self) -> str:
        """One line. Content above 64 KiB is left out and counted; its digest tells whether it was changed since."""
        said = {"reason": self.reason, "detail": self.detail, "position": self.position, "id": self.point}
        return json.dumps({**said, "digest": digest(self.content), **_content(self.content)})


def digest(content: Any) -> str:
    """16 hex digits of a row as it was read. Those that are nested too deeply to be written have the same."""
    if isinstance(content, Excerpt):
        return content.digest
    written = content if isinstance(content, bytes) else _written(content, sort_keys=True).encode()
    return hashlib.sha256(written).hexdigest()[:16]


def weight(row: Row | DeadLetter) -> int:
    """About how many bytes it takes when it is written."""
    return len(written_rows([row]) if isinstance(row, Row) else _written(row.content))


def _content(content: Any) -> dict[str, Any]:
    if isinstance(content, Excerpt):
        return {"bytes": content.size, "base64": _base64(content.beginning)}
    if isinstance(content, bytes):
        return {"bytes": len(content), "base64": _base64(content)}
    written = _written(content)
    return {"row": json.loads(written)} if len(written) <= _KEPT_BYTES else {"bytes": len(written)}


def _base64(content: bytes) -> str:
    return base64.b64encode(content[:_KEPT_BYTES]).decode("ascii")


def _written(content: Any, *, sort_keys: bool = False) -> str:
    try:
        return json.dumps(content, default=repr, sort_keys=sort_keys)
    except RecursionError:
        return "null"


def fault_of_nesting(payload: Any) -> tuple[str, str] | None:
    """Why no payload can be so deep (reason, detail), None if it is not."""
    level = [payload]
    for _ in range(_DEEPEST):
        level = [inner for each in level for inner in _inner(each)]
        if not level:
            return None
    return "payload that is no JSON", f"its lists and mappings lie in each other deeper than {_DEEPEST}"


def _inner(value: Any) -> list[Any]:
    held = value.values() if isinstance(value, Mapping) else value
    return [each for each in held if isinstance(each, Mapping | list)]


def fault_of_text(payload: Mapping[str, Any], key: str) -> tuple[str, str] | None:
    """Why the text under this key cannot be embedded (reason, detail), None if nothing speaks against it."""
    if payload.get(key) is None:
        return "no text", f"there is no {key!r}" if key not in payload else f"{key!r} is null"
    text = payload[key]
    if not isinstance(text, str):
        return "text of another type", f"{key!r} is of type {type(text).__name__}, not a text"
    if not text:
        return "empty text", f"{key!r} is empty"
    try:
        checked_text(text, key)
        size = len(text.encode())
    except (BadInput, UnicodeEncodeError) as exc:
        return "not UTF-8", f"{key!r} cannot be written as UTF-8: {exc}"
    if size > _LONGEST_TEXT_BYTES:
        return "too long", f"{key!r} has {size:,} bytes; no model reads more than {_LONGEST_TEXT_BYTES:,}"
    return None


def written_rows(rows: Iterable[Row]) -> bytes:
    """One JSON line a row."""
    return b"".join(
        json.dumps([row.point, row.text, row.payload, row.position, row.kept]).encode() + b"\n" for row in rows
    )


def read_rows(written: bytes) -> list[Row]:
    """What `written_rows` wrote."""
    return [Row(*json.loads(line)) for line in written.splitlines()]
