"""Texts as they come in: bytes that should be UTF-8, of any length."""

from collections.abc import Iterable

__all__ = ["MAX_CHARACTERS", "TextUnreadable", "decoded", "read_texts"]

# A tokenizer's time grows with the text, its memory faster, and 256 tokens of prose are about 1,200 characters:
# what lies beyond this many is never reached. Only a run of blanks or one endless word could tell the difference.
MAX_CHARACTERS = 16_384


class TextUnreadable(ValueError):
    """A text is not UTF-8; the message says which row and where."""


def read_texts(raw: Iterable[bytes | str]) -> list[str]:
    """Decode, and cut what no model reads. Raises TextUnreadable."""
    return [text[:MAX_CHARACTERS] for text in decoded(raw)]


def decoded(raw: Iterable[bytes | str]) -> list[str]:
    """Decode, whole. Raises TextUnreadable."""
    return [_decoded(row, text) for row, text in enumerate(raw)]


def _decoded(row: int, raw: bytes | str) -> str:
    if isinstance(raw, str):
        return raw
    try:
        return raw.decode()
    except UnicodeDecodeError as exc:
        raise TextUnreadable(f"text {row} is not UTF-8: {exc.reason} at byte {exc.start}") from exc
