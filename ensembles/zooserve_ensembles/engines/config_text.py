"""Triton's configuration text read without protobuf, which NVIDIA's container does not bring for Python."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Union

__all__ = ["BadConfig", "Message", "read_config"]

_TOKENS = re.compile(r"""\s+|\#[^\n]*|("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|[{}\[\]:,;<>]|[^\s{}\[\]:,;<>"'#]+)""")
_OPENING = {"{": "}", "<": ">"}
_NO_VALUES = frozenset("}]>:,;")


class BadConfig(ValueError):
    """The text is no configuration; the message says near what."""


Value = Union[str, "Message"]


@dataclass(frozen=True)
class Message:
    """Fields by name, each with all its values, in order: text as written, without quotes, or further messages."""

    fields: Mapping[str, list[Value]]

    def texts(self, name: str) -> list[str]:
        """The scalar values of a field."""
        return [value for value in self.fields.get(name, []) if isinstance(value, str)]

    def text(self, name: str, default: str = "") -> str:
        """The last scalar value of a field, as protobuf takes it."""
        return (self.texts(name) or [default])[-1]

    def messages(self, name: str) -> list["Message"]:
        """The messages in a field."""
        return [value for value in self.fields.get(name, []) if isinstance(value, Message)]

    def mapped(self, name: str) -> dict[str, "Message"]:
        """A map's messages by their keys."""
        return {entry.text("key"): value for entry in self.messages(name) for value in entry.messages("value")}


def read_config(text: str) -> Message:
    """The configuration in that text. Raises BadConfig."""
    return _Reader(_tokens(text)).message("")


def _tokens(text: str) -> Iterator[str]:
    position = 0
    while position < len(text):
        found = _TOKENS.match(text, position)
        if found is None:
            raise BadConfig(f"line {text.count(chr(10), 0, position) + 1} cannot be read")
        if found[1]:
            yield found[1]
        position = found.end()


class _Reader:
    def __init__(self, tokens: Iterator[str]) -> None:
        self._tokens = tokens
        self._next = next(tokens, "")

    def message(self, end: str) -> Message:
        """Fields up to a closing bracket, or to the end of the text."""
        fields: dict[str, list[Value]] = {}
        while self._next != end:
            name = self._take()
            if not re.fullmatch(r"[A-Za-z_]\w*", name):
                raise BadConfig(f"{name or 'its end'} stands where a field's name should")
            self._skip(":")
            fields.setdefault(name, []).extend(self._values(name))
            self._skip(",") or self._skip(";")
        self._take()
        return Message(fields)

    def _values(self, name: str) -> list[Value]:
        if not self._skip("["):
            return [self._value(name)]
        values: list[Value] = []
        while not self._skip("]"):
            values.append(self._value(name))
            self._skip(",")
        return values

    def _value(self, name: str) -> Value:
        token = self._take()
        if token in _OPENING:
            return self.message(_OPENING[token])
        if not token or token in _NO_VALUES:
            raise BadConfig(f"{name} has no value")
        if token[0] not in "\"'":
            return token
        value = _unquoted(token)
        while self._next[:1] in ("'", '"') and self._next:  # neighbouring strings are one
            value += _unquoted(self._take())
        return value

    def _take(self) -> str:
        token, self._next = self._next, next(self._tokens, "")
        return token

    def _skip(self, token: str) -> bool:
        if self._next != token:
            return False
        self._take()
        return True


def _unquoted(token: str) -> str:
    try:
        return str(ast.literal_eval(token))
    except (SyntaxError, ValueError) as exc:
        raise BadConfig(f"{token} is no text") from exc
