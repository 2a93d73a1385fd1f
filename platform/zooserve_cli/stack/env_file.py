"""`.env` files as Docker Compose reads them: quotes, comments, `export`, variables of earlier lines."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from zooserve_cli.stack.interpolation import interpolated
from zooserve_ensembles.checking.findings import Place

__all__ = ["EnvFile", "Variable", "parse_env", "read_env"]

_KEY = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z0-9_.][A-Za-z0-9_.\-]*)[ \t]*(?:([=:])[ \t]*|$)")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "$": "$$"}


@dataclass(frozen=True)
class Variable:
    """One line of an env file."""

    name: str
    value: str
    place: Place
    comment: str = ""
    """What the lines directly above say, without their `#`."""


@dataclass(frozen=True)
class EnvFile:
    """What an env file sets, and the lines that set nothing."""

    file: Path
    variables: Mapping[str, Variable] = field(default_factory=dict)
    unreadable: tuple[tuple[Place, str], ...] = ()
    repeated: tuple[Variable, ...] = ()

    @property
    def values(self) -> Mapping[str, str]:
        """Names and values."""
        return {name: variable.value for name, variable in self.variables.items()}


def read_env(file: Path, name: Path | None = None) -> EnvFile | None:
    """What a file sets; None where there is none that can be read."""
    try:
        return parse_env(file.read_text(encoding="utf-8-sig", errors="replace"), name or file)
    except OSError:
        return None


def parse_env(text: str, file: Path) -> EnvFile:
    """What a text sets. A later line wins; what is set before can be used."""
    found: dict[str, Variable] = {}
    unreadable: list[tuple[Place, str]] = []
    repeated: list[Variable] = []
    lines = text.splitlines()
    comment: list[str] = []
    number = 0
    while number < len(lines):
        line, place = lines[number], Place(file, number + 1)
        number += 1
        if not line.strip():
            comment = []
        elif line.lstrip().startswith("#"):
            comment.append(line.strip().lstrip("#").strip())
        elif key := _KEY.match(line):
            if not key[2]:  # a name alone hands on the shell's own, which is not looked at
                continue
            raw, taken = _raw(line[key.end() :], lines[number:])
            number += taken
            if raw is None:
                unreadable.append((place, "the quote is not closed"))
                raw = ""
            value = _value(raw, {name: variable.value for name, variable in found.items()})
            if key[1] in found:
                repeated.append(found[key[1]])
            found[key[1]] = Variable(key[1], value, place, " ".join(comment).strip())
        else:
            unreadable.append((place, "this is no NAME=value"))
    return EnvFile(file, found, tuple(unreadable), tuple(repeated))


def _raw(rest: str, following: list[str]) -> tuple[str | None, int]:
    """The value as written, with its quotes; a quoted one may go on over lines. None where its quote never closes."""
    quote = rest[:1]
    if quote not in ('"', "'"):
        return rest, 0
    text = rest
    for taken in range(len(following) + 1):
        if (end := _closing(text, quote)) is not None:
            return text[: end + 1], taken
        if taken < len(following):
            text += "\n" + following[taken]
    return None, 0


def _closing(text: str, quote: str) -> int | None:
    position = 1
    while position < len(text):
        if text[position] == "\\" and text[position + 1 : position + 2] in (quote, "\\"):
            position += 2
            continue
        if text[position] == quote:
            return position
        position += 1
    return None


def _value(raw: str, before: Mapping[str, str]) -> str:
    if raw.startswith("'"):
        return raw[1:-1]
    if raw.startswith('"'):
        return interpolated(_unescaped(raw[1:-1]), before).text
    bare = re.split(r"(?:^|\s+)#", raw, maxsplit=1)[0].strip()
    return interpolated(bare, before).text


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), text)
