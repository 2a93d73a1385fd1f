"""Sections of manuals in the two markups that the FAQ set is made from: Perl's POD and Python's reStructuredText."""

import re
from collections.abc import Iterator
from itertools import pairwise

__all__ = ["pod_sections", "rst_sections"]

Sections = Iterator[tuple[str, str]]

_UNDERLINE = re.compile(r"([-=~^\"'*.])\1{3,}")


def pod_sections(text: str) -> Sections:
    """Headings of any level with the text up to the next one, markup removed."""
    parts = re.split(r"^=head[1-4] (.*)$", text, flags=re.M)
    for heading, body in zip(parts[1::2], parts[2::2], strict=True):
        yield _plain_pod(heading), _plain_pod(re.sub(r"^=\w+.*$", "", body, flags=re.M))


def rst_sections(text: str) -> Sections:
    """Underlined headings with the text up to the next one, markup removed."""
    lines = text.split("\n")
    headings = [number for number, two in enumerate(pairwise(lines)) if _is_heading(*two)]
    for number, end in pairwise([*headings, len(lines)]):
        yield _plain_rst(lines[number]), _plain_rst("\n".join(lines[number + 2 : end]))


def _is_heading(line: str, below: str) -> bool:
    line, below = line.strip(), below.strip()
    return (
        bool(line)
        and not _UNDERLINE.fullmatch(line)
        and bool(_UNDERLINE.fullmatch(below))
        and len(below) >= len(line) - 1
    )


def _plain_pod(text: str) -> str:
    return " ".join(re.sub(r"[A-Z]<<?\s?(.*?)\s?>?>", r"\1", text).split())


def _plain_rst(text: str) -> str:
    text = re.sub(r":\w+:`~?([^`<]*?)(?: <[^`>]*>)?`", r"\1", text)
    text = re.sub(r"``([^`]*)``", r"\1", text)
    text = re.sub(r"^\.\. .*$|^[-=~^\"'*.]{4,}$", "", text, flags=re.M)
    return " ".join(text.split())
