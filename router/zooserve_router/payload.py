"""Reading a JSON body field by field: wrong types, missing and unknown fields are named, never guessed around."""

import difflib
from collections.abc import Collection
from typing import Any

import orjson
from starlette.requests import Request

from zooserve.errors import BadInput

__all__ = ["NUL_ADVICE", "Fields", "checked_text", "json_fields", "kind_of", "shown", "unknown_field"]

_KINDS = {str: "a string", bool: "a boolean", int: "an integer", float: "a number", list: "an array", dict: "an object"}
NUL_ADVICE = "NUL characters mean nothing to the model and mostly come from binary data; remove them."


def kind_of(value: object) -> str:
    """What JSON calls this value, for messages."""
    return "null" if value is None else _KINDS[type(value)]


def shown(value: object) -> str:
    """The value for a message: the beginning of a string, of anything else its kind, since it may be deeply nested."""
    return repr(value[:64]) if isinstance(value, str) else kind_of(value)


def unknown_field(path: str, advice: str) -> BadInput:
    """The refusal of a field that nothing here reads, in the words that OpenAI's clients look for."""
    return BadInput(f"Unrecognized request argument supplied: {path}. {advice}", param=path, code="unknown_parameter")


async def json_fields(request: Request) -> "Fields":
    """The body's fields. Raises BadInput unless it is one JSON object and says so.

    orjson refuses lone surrogates, NaN and invalid UTF-8 itself, so every string that comes through can be encoded.
    """
    content_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise BadInput(f"The content type is {content_type!r}; send JSON with `content-type: application/json`.")
    if request.headers.get("content-encoding", "identity") != "identity":
        raise BadInput("Compressed bodies are not read here; send the request without content-encoding.")
    body = await request.body()
    if not body:
        raise BadInput("The body is empty; send a JSON object.")
    try:
        values = orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        raise BadInput(f"The body is not valid JSON: {exc}.{_advice(exc, body)}", code="invalid_json") from exc
    if not isinstance(values, dict):
        raise BadInput(f"The body is {kind_of(values)}; send a JSON object.")
    return Fields(values)


def _advice(exc: orjson.JSONDecodeError, body: bytes) -> str:
    """orjson blames a surrogate for every byte that is not UTF-8, too."""
    if "surrogate" not in str(exc):
        return ""
    try:
        body.decode()
    except UnicodeDecodeError as broken:
        return f" Byte {broken.start} is not UTF-8: encode the body as UTF-8."
    return " Half a surrogate pair is no character: send the whole one."


class Fields:
    """The fields of one JSON object. Each is read once; `refuse_unknown` names what nobody read. null means unset.

    `within` is where in the body the object stands, for the names in messages.
    """

    def __init__(self, values: dict[str, Any], within: str = "") -> None:
        self._values = values
        self._within = within
        self._read: set[str] = set()

    @classmethod
    def of(cls, value: Any, within: str) -> "Fields":
        """The fields of a nested object. Raises BadInput for anything else."""
        if not isinstance(value, dict):
            raise _wrong_kind(within, "an object", value)
        return cls(value, within)

    def path(self, name: str) -> str:
        """What the field is called from the top of the body."""
        return f"{self._within}.{name}" if self._within else name

    def __contains__(self, name: str) -> bool:
        """Whether it was sent, be it null; asking does not make it a field that is known here."""
        return name in self._values

    def raw(self, name: str) -> Any:
        """The value as it came, None if unset."""
        self._read.add(name)
        return self._values.get(name)

    def required(self, name: str) -> Any:
        """The value as it came. Raises BadInput if unset."""
        value, path = self.raw(name), self.path(name)
        if value is None:
            raise BadInput(f"`{path}` is missing.", param=path, code="missing_required_parameter")
        return value

    def text(self, name: str) -> str | None:
        """A string, None if unset."""
        value = self.raw(name)
        if value is not None and not isinstance(value, str):
            raise _wrong_kind(self.path(name), "a string", value)
        return value

    def required_text(self, name: str) -> str:
        """A string that is neither unset nor empty."""
        value = self.required(name)
        if not isinstance(value, str):
            raise _wrong_kind(self.path(name), "a string", value)
        if not value:
            raise BadInput(f"`{self.path(name)}` is empty.", param=self.path(name))
        return value

    def integer(self, name: str, *, low: int, high: int | None = None) -> int | None:
        """An integer within the bounds, None if unset."""
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            raise _wrong_kind(self.path(name), "an integer", value)
        if value < low or (high is not None and value > high):
            bounds = f"at least {low}" if high is None else f"between {low} and {high}"
            raise BadInput(f"`{self.path(name)}` is {value}; it must be {bounds}.", param=self.path(name))
        return value

    def number(self, name: str, *, low: float, high: float, default: float) -> float:
        """A number within the bounds, or the default if unset."""
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise _wrong_kind(self.path(name), "a number", value)
        if not low <= value <= high:
            raise BadInput(
                f"`{self.path(name)}` is {value}; it must be between {low:g} and {high:g}.", param=self.path(name)
            )
        return float(value)

    def boolean(self, name: str, *, default: bool) -> bool:
        """A boolean, or the default if unset."""
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise _wrong_kind(self.path(name), "a boolean", value)
        return value

    def choice(self, name: str, choices: Collection[str], *, default: str) -> str:
        """One of these strings, or the default if unset."""
        value = self.text(name)
        if value is None:
            return default
        if value not in choices:
            path = self.path(name)
            raise BadInput(f"`{path}` is {value[:64]!r}; it must be one of: {', '.join(choices)}.", param=path)
        return value

    def refuse_unknown(self) -> None:
        """Raises BadInput naming a field that nothing has read."""
        for name in self._values:
            if name not in self._read:
                near = difflib.get_close_matches(name[:64], self._read, n=1)
                advice = f"Did you mean `{near[0]}`?" if near else f"Known here: {', '.join(sorted(self._read))}."
                raise unknown_field(self.path(name[:64]), advice)


def checked_text(value: Any, param: str, *, may_be_empty: bool = False) -> str:
    """A text that a model can read. Raises BadInput for another type, an empty one, or one with NULs."""
    if not isinstance(value, str):
        raise _wrong_kind(param, "a string", value)
    if not value and not may_be_empty:
        raise BadInput(f"`{param}` is an empty string; leave it out or send text.", param=param)
    if "\0" in value:
        raise BadInput(f"`{param}` contains a NUL character. {NUL_ADVICE}", param=param)
    return value


def _wrong_kind(name: str, wanted: str, value: Any) -> BadInput:
    return BadInput(f"`{name}` is {kind_of(value)}; it must be {wanted}.", param=name, code="invalid_type")
