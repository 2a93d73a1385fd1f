"""An answer that is JSON, read while it comes: what is said, and which functions are called with what."""

from collections.abc import Callable, Generator

from zooserve_router.chat.generation import ToolCallPart

__all__ = ["AnswerParser", "Said", "Unreadable"]

Said = str | ToolCallPart
Emit = Callable[[str], None]
# A parser takes one character per `send`; what it returns is the character after what it has read.
Reading = Generator[None, str, str]

_BLANK = " \t\n\r"
_AFTER_SCALAR = frozenset(_BLANK + ",}]")
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_REPLACEMENT = "\ufffd"


class Unreadable(ValueError):
    """The answer is not what the grammar was to hold it to."""


class AnswerParser:
    """Reads one answer in pieces cut anywhere. A message comes out decoded, arguments exactly as they are written."""

    def __init__(self, arguments: str, new_id: Callable[[], str], *, raw_message: bool = False) -> None:
        self._arguments_key = arguments
        self._new_id = new_id
        self._raw_message = raw_message
        self._said: list[Said] = []
        self._open = 0
        self._begun = self._means_something = False
        self._calls = 0
        self._early = ""
        """Arguments that came before the name of what is called."""
        self.complete = False
        """Whether the answer is whole; only blanks may follow."""
        self._parser = self._answer()
        next(self._parser)

    @property
    def calls(self) -> int:
        """How many calls it has begun."""
        return self._calls

    def feed(self, text: str) -> list[Said]:
        """What is new. Raises Unreadable for text that the schema does not allow."""
        for character in text:
            self._parser.send(character)
        said, self._said = self._said, []
        return _joined(said)

    def _answer(self) -> Reading:
        character = yield from _past_blanks((yield))
        if character == "[":
            self._enter()
            character = yield from self._array()
        else:
            character = yield from self._object(character)
        while True:
            _require(character, _BLANK)
            character = yield

    def _array(self) -> Reading:
        while True:
            character = yield from self._object((yield from _past_blanks((yield))))
            character = yield from _past_blanks(character)
            if character == "]":
                self._leave()
                return (yield)
            _require(character, ",")

    def _object(self, character: str) -> Reading:
        """A call or a message, whose brace is `character`."""
        _require(character, "{")
        self._enter()
        self._begun, self._means_something, self._early = False, False, ""
        while True:
            key: list[str] = []
            character = yield from _string((yield from _past_blanks((yield))), key.append)
            _require((yield from _past_blanks(character)), ":")
            character = yield from self._member("".join(key), (yield from _past_blanks((yield))))
            character = yield from _past_blanks(character)
            if character == "}":
                self._require_meaning()
                self._leave()
                return (yield)
            _require(character, ",")

    def _member(self, key: str, character: str) -> Reading:
        if key == "message":
            self._means_something = True
            read = _raw if self._raw_message else _string
            return (yield from read(character, self._say))
        if key == self._arguments_key:
            return (yield from _raw(character, self._argue))
        if key != "name":
            raise Unreadable(f"it has a member {key[:64]!r}")
        name: list[str] = []
        character = yield from _string(character, name.append)
        self._begin("".join(name))
        return character

    def _require_meaning(self) -> None:
        if not self._means_something:
            raise Unreadable("it has neither a message nor the name of a function")

    def _say(self, text: str) -> None:
        self._said.append(text)

    def _begin(self, name: str) -> None:
        self._said.append(ToolCallPart(self._calls, self._early, self._new_id(), name))
        self._begun = self._means_something = True
        self._calls += 1

    def _argue(self, text: str) -> None:
        if self._begun:
            self._said.append(ToolCallPart(self._calls - 1, text))
        else:
            self._early += text

    def _enter(self) -> None:
        self._open += 1

    def _leave(self) -> None:
        self._open -= 1
        self.complete = self._open == 0


def _joined(said: list[Said]) -> list[Said]:
    """Neighbours that belong together as one."""
    joined: list[Said] = []
    for part in said:
        last = joined[-1] if joined else None
        if isinstance(part, str) and isinstance(last, str):
            joined[-1] = last + part
        elif isinstance(part, ToolCallPart) and isinstance(last, ToolCallPart) and part.index == last.index:
            joined[-1] = ToolCallPart(last.index, last.arguments + part.arguments, last.id, last.name)
        else:
            joined.append(part)
    return joined


def _require(character: str, allowed: str) -> None:
    if character not in allowed:
        raise Unreadable(f"it has {character!r} where only {allowed!r} may stand")


def _past_blanks(character: str) -> Reading:
    while character in _BLANK:
        character = yield
    return character


def _string(character: str, emit: Emit) -> Reading:
    """A string, decoded; half a surrogate pair is held until its other half comes."""
    _require(character, '"')
    halves = _Surrogates()
    while (character := (yield)) != '"':
        if character < " ":
            raise Unreadable(f"it has {character!r} in a string")
        decoded = (yield from _escaped()) if character == "\\" else character
        if whole := halves.feed(decoded):
            emit(whole)
    if rest := halves.end():
        emit(rest)
    return (yield)


def _escaped() -> Reading:
    """The character that an escape stands for, read behind its backslash."""
    character = yield
    if character != "u":
        _require(character, "".join(_ESCAPES))
        return _ESCAPES[character]
    digits = ""
    while len(digits) < 4:
        character = yield
        _require(character, "0123456789abcdefABCDEF")
        digits += character
    return chr(int(digits, 16))


class _Surrogates:
    """Joins the two escapes that JSON writes one character with; a half without the other is U+FFFD."""

    def __init__(self) -> None:
        self._high = ""

    def feed(self, character: str) -> str:
        high, self._high = self._high, ""
        if high and "\udc00" <= character <= "\udfff":
            return (high + character).encode("utf-16", "surrogatepass").decode("utf-16")
        lost = _REPLACEMENT if high else ""
        if "\ud800" <= character <= "\udbff":
            self._high = character
            return lost
        return lost + (_REPLACEMENT if "\udc00" <= character <= "\udfff" else character)

    def end(self) -> str:
        return _REPLACEMENT if self._high else ""


def _raw(character: str, emit: Emit) -> Reading:
    """Any value, as it is written."""
    depth = 0
    while True:
        emit(character)
        if character == '"':
            yield from _raw_string(emit)
        depth += (character in "{[") - (character in "}]")
        if depth == 0 and character in '"}]':
            return (yield)
        character = yield
        if depth == 0 and character in _AFTER_SCALAR:
            return character


def _raw_string(emit: Emit) -> Generator[None, str, None]:
    """What follows a quote, up to the quote that ends it."""
    while True:
        character = yield
        emit(character)
        if character == '"':
            return
        if character == "\\":
            emit((yield))
