"""What a container file declares: its arguments, its stages, and what it starts."""

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from zooserve_cli.stack.service import Word
from zooserve_ensembles.checking.findings import Place

__all__ = ["ContainerFile", "Stage", "read_container_file"]

_INSTRUCTION = re.compile(r"^\s*([A-Za-z]+)\s+(.*)$", re.S)
_ARGUMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:=(\S*))?")


@dataclass(frozen=True)
class Stage:
    """One `FROM`: the image it starts from, as written, and its name."""

    place: Place
    image: str
    name: str


@dataclass(frozen=True)
class ContainerFile:
    """A container file as far as a compose file depends on it."""

    file: Path
    arguments: dict[str, str | None]
    stages: tuple[Stage, ...]
    entrypoint: tuple[Word, ...] = ()
    command: tuple[Word, ...] = ()
    has_health_check: bool = False


def read_container_file(file: Path) -> ContainerFile | None:
    """The file, read; None where it cannot be."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    arguments: dict[str, str | None] = {}
    stages: list[Stage] = []
    entrypoint: tuple[Word, ...] = ()
    command: tuple[Word, ...] = ()
    has_health_check = False
    for number, text in _instructions(lines):
        found = _INSTRUCTION.match(text)
        if found is None:
            continue
        place, rest = Place(file, number), found[2].strip()
        match found[1].upper():
            case "ARG":
                arguments.update({name: value or None for name, value in _ARGUMENT.findall(rest)})
            case "FROM":
                stages.append(_stage(place, rest))
                entrypoint = command = ()
                has_health_check = False
            case "ENTRYPOINT":
                entrypoint, command = _words(rest, place), ()
            case "CMD":
                command = _words(rest, place)
            case "HEALTHCHECK":
                has_health_check = rest.upper() != "NONE"
    return ContainerFile(file, arguments, tuple(stages), entrypoint, command, has_health_check)


def _instructions(lines: list[str]) -> list[tuple[int, str]]:
    """Instructions on one line each, with the number of their first."""
    found: list[tuple[int, str]] = []
    open_line = False
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("#") or (not line.strip() and not open_line):
            continue
        text = line.rstrip()
        continues = text.endswith("\\")
        text = text.rstrip("\\")
        if open_line:
            first, before = found[-1]
            found[-1] = (first, f"{before} {text.strip()}")
        else:
            found.append((number, text))
        open_line = continues
    return found


def _stage(place: Place, rest: str) -> Stage:
    words = [word for word in rest.split() if not word.startswith("--")]
    named = len(words) >= 3 and words[1].upper() == "AS"
    return Stage(place, words[0] if words else "", words[2] if named else "")


def _words(rest: str, place: Place) -> tuple[Word, ...]:
    try:
        listed = json.loads(rest)
    except ValueError:
        listed = None
    if isinstance(listed, list):
        return tuple(Word(str(word), place) for word in listed)
    try:
        return tuple(Word(word, place) for word in shlex.split(rest))
    except ValueError:
        return ()
