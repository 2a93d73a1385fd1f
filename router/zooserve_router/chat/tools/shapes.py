"""The schema of an answer that is a call, or several, or a message."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from zooserve_router.chat.generation import Tool
from zooserve_router.chat.tools.families import Family

__all__ = ["MAX_CALLS", "answer_schema", "with_named_root"]

Schema = Mapping[str, Any]

MAX_CALLS = 8
"""Calls that one answer may make, in a family that writes several: a small model would not stop by itself."""

_DATA = ("const", "default", "enum", "examples")
_MAPS = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")


def answer_schema(family: Family, tools: Sequence[Tool], *, most: int, message: Schema | None = None) -> dict[str, Any]:
    """What an answer is held to: at most `most` calls, or an object whose `message` is as that schema says, if given.

    `name` stands before the arguments, so that a stream can say at once what is called.
    """
    defined = {f"call_{index}": _call(family, tool, f"#/$defs/call_{index}") for index, tool in enumerate(tools)}
    answers: list[Schema] = [{"$ref": f"#/$defs/{name}"} for name in defined]
    if family.several:
        answers = [{"type": "array", "items": {"anyOf": answers}, "minItems": 1, "maxItems": most}]
    if message is not None:
        defined["message"] = _object({"message": _rebased(message, "#/$defs/message/properties/message")})
        answers = [{"$ref": "#/$defs/message"}, *answers]
    return {"$defs": defined, "anyOf": answers}


def with_named_root(schema: Schema) -> Schema:
    """The same schema without references to `#`, the whole of it, which llama.cpp's grammars cannot follow."""
    if '"$ref": "#"' not in json.dumps(schema):
        return schema
    return {"$defs": {"root": _rebased(schema, "#/$defs/root")}, "$ref": "#/$defs/root"}


def _call(family: Family, tool: Tool, place: str) -> dict[str, Any]:
    arguments = _rebased(tool.parameters, f"{place}/properties/{family.arguments}")
    if not arguments.keys() & {"type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const"}:
        arguments["type"] = "object"
    return _object({"name": {"const": tool.name}, family.arguments: arguments})


def _object(properties: Schema) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _rebased(schema: Schema, place: str) -> dict[str, Any]:
    """The same schema at another place of a document: its references lead to the same things there."""
    moved: dict[str, Any] = {}
    for name, value in schema.items():
        if name == "$ref" and isinstance(value, str) and (value == "#" or value.startswith("#/")):
            moved[name] = place + value[1:]
        elif name in _DATA:
            moved[name] = value
        elif name in _MAPS and isinstance(value, Mapping):
            moved[name] = {key: _rebased_value(part, place) for key, part in value.items()}
        else:
            moved[name] = _rebased_value(value, place)
    return moved


def _rebased_value(value: Any, place: str) -> Any:
    if isinstance(value, Mapping):
        return _rebased(value, place)
    return [_rebased_value(part, place) for part in value] if isinstance(value, list) else value
