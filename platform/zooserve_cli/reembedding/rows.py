"""Rows as they go through a job: read, written into a part, embedded, stored; and those that cannot be."""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from zooserve.errors import BadInput
from zooserve.sdk.inputs import checked_text

__all__ = ["DeadLetter", "Row", "digest", "fault_of_text", "read_rows", "written_rows"]

PointId = int | str

_LONGEST_TEXT_BYTES = 1 << 20
"""No model reads so much; the platform would refuse it by its tokens."""
_KEPT_BYTES = 1 << 16
"""Of a bad row's own content; of a longer one the letter says where it lies."""


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
class DeadLetter:
    """A row that is not in the new collection, and why."""

    reason: str
    """One of a few words: no text, text of another type, empty text, too long, duplicate id, not UTF-8 and so on."""
    detail: str
    position: str
    point: PointId | None
    content: Any = None
    """The row as it was read; bytes where it could not be read as text."""

    def as_json(self) -> str:
        """One line. Content above 64 KiB is left out and counted; its digest tells whether it was changed since."""
        said = {"reason": self.reason, "detail": self.detail, "position": self.position, "id": self.point}
        return json.dumps({**said, "digest": digest(self.content), **_content(self.content)})


def digest(content: Any) -> str:
    """16 hex digits of a row as it was read."""
    written = content if isinstance(content, bytes) else json.dumps(content, default=repr, sort_keys=True).encode()
    return hashlib.sha256(written).hexdigest()[:16]


def _content(content: Any) -> dict[str, Any]:
    if isinstance(content, bytes):
        kept = content[:_KEPT_BYTES]
        return {"bytes": len(content), "base64": base64.b64encode(kept).decode("ascii")}
    size = len(json.dumps(content, default=repr))
    return {"row": json.loads(json.dumps(content, default=repr))} if size <= _KEPT_BYTES else {"bytes": size}


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
