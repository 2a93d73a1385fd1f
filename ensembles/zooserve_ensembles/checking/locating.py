"""Where each field of a protobuf text file stands: the protobuf's own parser tells lines only for what it refuses.

Knows the text format's grammar, not the schema: both `{}` and `<>`, lists, adjacent strings, any separator.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from google.protobuf import text_encoding

__all__ = ["Block", "Field", "Step", "Unlocatable", "locate"]

_TOKEN = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)|(?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(?P<mark>[{}<>\[\]:,;])"""
    r"""|(?P<word>[^\s{}<>\[\]:,;"'\#]+)""",
    re.DOTALL,
)
_CLOSES = {"{": "}", "<": ">"}

Step = str | tuple[str, int] | tuple[str, str]
"""One step down a path: a field's name, (name, n) for the nth of a repeated field, (name, key) for a map's entry."""


class Unlocatable(ValueError):
    """The text is not in protobuf's text format."""


@dataclass(frozen=True)
class Field:
    """A field as written: an element of a list counts as a field of its own."""

    name: str
    line: int
    value: "str | Block"


@dataclass(frozen=True)
class Block:
    """The fields of one message, in the order of the file."""

    fields: tuple[Field, ...] = ()

    def all(self, name: str) -> list[Field]:
        """Every field of that name."""
        return [field for field in self.fields if field.name == name]

    def line(self, path: Sequence[Step]) -> int:
        """The line of the field at `path`, or of the nearest one around it; 0 where nothing on the path is there."""
        block, line = self, 0
        for step in path:
            found = block.find(step)
            if found is None:
                break
            line = found.line
            block = found.value if isinstance(found.value, Block) else Block()
        return line

    def has(self, path: Sequence[Step]) -> bool:
        """Whether there is a field at `path`."""
        block = self
        for step in path:
            found = block.find(step)
            if found is None:
                return False
            block = found.value if isinstance(found.value, Block) else Block()
        return True

    def find(self, step: Step) -> Field | None:
        """The field that one step leads to."""
        name, which = (step, 0) if isinstance(step, str) else step
        fields = self.all(name)
        if isinstance(which, str):
            # A map's later entry for a key replaces the earlier one.
            return next((field for field in reversed(fields) if _key(field) == which), None)
        return fields[which] if which < len(fields) else None


def locate(text: str) -> Block:
    """The fields of a file. Raises Unlocatable where protobuf would refuse the grammar too."""
    tokens = _Tokens(list(_tokens(text)))
    block = _block(tokens, "")
    if tokens.peek():
        raise Unlocatable(f"line {tokens.line}: unexpected {tokens.peek()}")
    return block


@dataclass
class _Tokens:
    found: list[tuple[str, int]]
    position: int = 0
    line: int = field(default=1)

    def peek(self) -> str:
        return self.found[self.position][0] if self.position < len(self.found) else ""

    def take(self, expected: str = "") -> str:
        token = self.peek()
        if not token or (expected and token != expected):
            raise Unlocatable(f"line {self.line}: expected {expected or 'more'}, found {token or 'the end'}")
        self.line = self.found[self.position][1]
        self.position += 1
        return token


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    line, position = 1, 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise Unlocatable(f"line {line}: unexpected {text[position]}")
        if match.lastgroup != "space":
            yield match.group(), line
        line += match.group().count("\n")
        position = match.end()


def _block(tokens: _Tokens, closes: str) -> Block:
    fields: list[Field] = []
    while tokens.peek() != closes:
        fields += _field(tokens)
        while tokens.peek() in (",", ";") and tokens.peek():
            tokens.take()
    return Block(tuple(fields))


def _field(tokens: _Tokens) -> list[Field]:
    name, line = _name(tokens), tokens.line
    if tokens.peek() == ":":
        tokens.take()
    if tokens.peek() != "[":
        return [Field(name, line, _value(tokens))]
    tokens.take("[")
    elements = []
    while tokens.peek() != "]":
        value_line = tokens.found[tokens.position][1] if tokens.peek() else line
        elements.append(Field(name, value_line, _value(tokens)))
        if tokens.peek() == ",":
            tokens.take()
    tokens.take("]")
    return elements


def _name(tokens: _Tokens) -> str:
    name = tokens.take()
    if name == "[":  # an extension, or the type of an Any
        while tokens.peek() != "]":
            name += tokens.take()
        name += tokens.take("]")
    return name


def _value(tokens: _Tokens) -> "str | Block":
    opens = tokens.peek()
    if opens in _CLOSES:
        tokens.take()
        block = _block(tokens, _CLOSES[opens])
        tokens.take(_CLOSES[opens])
        return block
    word = tokens.take()
    if word in "{}<>[]:,;":
        raise Unlocatable(f"line {tokens.line}: expected a value, found {word}")
    if word[0] not in "\"'":
        return word + tokens.take() if word == "-" else word
    parts = [word]
    while tokens.peek()[:1] in ('"', "'") and tokens.peek():
        parts.append(tokens.take())
    return "".join(_unescaped(part) for part in parts)


def _unescaped(quoted: str) -> str:
    try:
        return bytes(text_encoding.CUnescape(quoted[1:-1])).decode("utf-8", "replace")
    except ValueError:
        return quoted[1:-1]


def _key(entry: Field) -> str | None:
    key = entry.value.find("key") if isinstance(entry.value, Block) else None
    return key.value if key is not None and isinstance(key.value, str) else None
