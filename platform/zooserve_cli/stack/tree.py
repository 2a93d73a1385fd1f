"""A YAML file as a tree in which every part knows its line. Nothing in it raises on an unforeseen shape."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

from zooserve_ensembles.checking.findings import Place

__all__ = ["EMPTY", "Node", "Scalar", "TreeError", "parse_tree", "read_tree"]

Scalar = str | int | float | bool | None

_LARGEST = 4 * 2**20
_DEEPEST = 64
_MOST = 100_000
"""Parts of one file, aliases counted as often as they are used: a file that is made to explode is refused."""


class TreeError(Exception):
    """A file that cannot be read as YAML; `line` is where."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class Node:
    """One part of a YAML file: a scalar, a list or a mapping, with its place and its key's."""

    value: Any
    place: Place
    key_place: Place
    is_block: bool = False
    """A `|` or `>` scalar: its text begins on the next line."""
    tag: str = ""
    """A tag of its own, as `!reset`."""

    def __getitem__(self, key: str | int) -> "Node":
        """The part under `key`, an empty one where it is not there."""
        if isinstance(key, str):
            found = self.entries.get(key)
        else:
            found = self.elements[key] if -len(self.elements) <= key < len(self.elements) else None
        return found if found is not None else replace(EMPTY, place=self.place, key_place=self.key_place)

    def at(self, *path: str) -> "Node":
        """The part at the end of a path."""
        node = self
        for key in path:
            node = node[key]
        return node

    @property
    def entries(self) -> Mapping[str, "Node"]:
        """What is in a mapping; nothing where it is none."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def elements(self) -> tuple["Node", ...]:
        """What is in a list; nothing where it is none."""
        return self.value if isinstance(self.value, tuple) else ()

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.value, dict)

    @property
    def is_list(self) -> bool:
        return isinstance(self.value, tuple)

    @property
    def is_scalar(self) -> bool:
        return not self.is_mapping and not self.is_list

    @property
    def is_there(self) -> bool:
        return self.value is not None

    @property
    def text(self) -> str:
        """A scalar as YAML and Compose write it; empty for everything else."""
        if self.value is None or not self.is_scalar:
            return ""
        if isinstance(self.value, bool):
            return "true" if self.value else "false"
        return str(self.value)

    @property
    def is_true(self) -> bool:
        return self.text.lower() in ("true", "yes", "on", "1")

    def line_of(self, offset: int) -> Place:
        """Where the character at `offset` of a scalar's text stands."""
        before = self.text.count("\n", 0, offset)
        return replace(self.place, line=self.place.line + before + (1 if self.is_block else 0))

    def walk(self, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], "Node"]]:
        """Every part below, and itself, with the keys that lead there."""
        yield path, self
        for key, inner in self.entries.items():
            yield from inner.walk((*path, key))
        for inner in self.elements:
            yield from inner.walk((*path, "*"))

    def plain(self) -> Any:
        """The same without lines."""
        if self.is_mapping:
            return {key: inner.plain() for key, inner in self.entries.items()}
        return [inner.plain() for inner in self.elements] if self.is_list else self.value


EMPTY = Node(None, Place(Path()), Place(Path()))


def read_tree(file: Path, name: Path | None = None) -> Node:
    """The file's only document. Raises TreeError; `name` is how findings call the file."""
    return parse_tree(_text(file), name or file)


def parse_tree(text: str, name: Path) -> Node:
    """A text's only document."""
    loader = YAML(typ="safe", pure=True)
    try:
        documents = list(loader.compose_all(text))
    except MarkedYAMLError as exc:
        line = exc.problem_mark.line + 1 if exc.problem_mark is not None else 1
        raise TreeError(line, f"{exc.problem or exc.context or 'this is no YAML'}") from exc
    except (YAMLError, ValueError, RecursionError, OverflowError) as exc:
        raise TreeError(1, str(exc).partition("\n")[0] or "this is no YAML") from exc
    if len(documents) > 1:
        raise TreeError(documents[1].start_mark.line + 1, "one file holds one document: remove what follows `---`")
    if not documents or documents[0] is None:
        return Node(None, Place(name, 1), Place(name, 1))
    return _Reading(name).node(documents[0], documents[0].start_mark.line + 1, ())


def _text(file: Path) -> str:
    try:
        if file.stat().st_size > _LARGEST:
            raise TreeError(0, "it is too large to be read here")
        return file.read_text(encoding="utf-8-sig")
    except OSError as exc:
        raise TreeError(0, f"it cannot be read: {exc.strerror or exc}") from exc
    except UnicodeDecodeError as exc:
        raise TreeError(0, "it is not UTF-8") from exc


class _Reading:
    """One file being turned into a tree; it counts, so that aliases cannot explode."""

    def __init__(self, name: Path) -> None:
        self._name = name
        self._count = 0

    def node(self, node: Any, key_line: int, above: tuple[int, ...]) -> Node:
        line = node.start_mark.line + 1
        self._count += 1
        if self._count > _MOST or len(above) > _DEEPEST or id(node) in above:
            raise TreeError(line, "aliases or levels without end: write it out")
        place, key_place = Place(self._name, line), Place(self._name, key_line)
        within = (*above, id(node))
        if isinstance(node, MappingNode):
            return self._mapping(node, place, key_place, within)
        if isinstance(node, SequenceNode):
            inner = tuple(self.node(part, part.start_mark.line + 1, within) for part in node.value)
            return Node(inner, place, key_place, tag=_own_tag(node))
        return Node(_scalar(node), place, key_place, is_block=node.style in ("|", ">"), tag=_own_tag(node))

    def _mapping(self, node: Any, place: Place, key_place: Place, within: tuple[int, ...]) -> Node:
        entries: dict[str, Node] = {}
        merged: list[Node] = []
        for key, value in node.value:
            line = key.start_mark.line + 1
            name = str(key.value) if isinstance(key, ScalarNode) else "?"
            inner = self.node(value, line, within)
            if name == "<<" and not getattr(key, "style", None):
                merged += inner.elements if inner.is_list else [inner]
            elif name in entries:
                raise TreeError(line, f"{name} is given twice, first on line {entries[name].key_place.line}")
            else:
                entries[name] = inner
        for base in merged:
            for name, inner in base.entries.items():
                entries.setdefault(name, inner)
        return Node(entries, place, key_place, tag=_own_tag(node))


def _own_tag(node: Any) -> str:
    tag = str(node.tag or "")
    return tag if tag.startswith("!") else ""


def _scalar(node: Any) -> Scalar:
    """A scalar as YAML 1.2 reads it; what is no number after all stays text."""
    text, kind = str(node.value), str(node.tag).rpartition(":")[2]
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    try:
        if kind == "int":
            return _whole(text)
        if kind == "float":
            number = float(text.replace("_", ""))
            return number if math.isfinite(number) else text
    except ValueError:
        return text
    return text


def _whole(text: str) -> int | str:
    plain = text.replace("_", "")
    if len(plain) > 40 or ":" in plain:
        return text
    sign = -1 if plain.startswith("-") else 1
    digits = plain.lstrip("+-")
    bases = {"0x": 16, "0o": 8, "0b": 2}
    return sign * int(digits, bases.get(digits[:2].lower(), 10))
