"""JSON schemas that a request brings: checked before an engine makes a grammar of them.

What an engine says of a bad schema comes late, and as a failure of its own; here it is named, with the place in it.
jsonschema-rs checks 3,000 subschemas in 20 ms, where jsonschema holds the event loop up for two seconds.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jsonschema_rs
import orjson

from zooserve.errors import BadInput
from zooserve_router.nesting import is_deeper
from zooserve_router.payload import kind_of
from zooserve_router.references import referred

__all__ = ["Blame", "checked_schema"]

Schema = Mapping[str, Any]

_MAX_BYTES = 64 * 1024
"""Of one schema: a grammar of it is built while the caller waits."""
_MAX_LEVELS = 64
"""Of nested JSON in a schema, about twenty objects in one another."""
_MAX_PATTERNS = 64
# A pattern compiles to that many bytes or is refused, within 5 ms; without a bound `(a{1000}){900}` takes 60.
_PATTERNS = jsonschema_rs.FancyRegexOptions(size_limit=2**18)
_MAX_STRICT_OBJECTS = 10
_MAX_STRICT_PROPERTIES = 5000
_MAX_STRICT_CHOICES = 1000

_ONE = (
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_LISTS = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
_MAPS = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_TYPES = {"enum": ["array", "boolean", "integer", "null", "number", "object", "string"]}
_TEXT, _NUMBER, _BOUND = {"type": "string"}, {"type": "number"}, {"type": ["number", "boolean"]}
_SUBSCHEMA = {"$ref": "#"}
_SUBSCHEMAS = {"type": "array", "items": _SUBSCHEMA}
_SUBSCHEMAS_BY_NAME = {"type": "object", "additionalProperties": _SUBSCHEMA}
_SHAPE = {
    "type": ["object", "boolean"],
    "properties": {
        **dict.fromkeys(_ONE, _SUBSCHEMA),
        **dict.fromkeys(_LISTS, _SUBSCHEMAS),
        **dict.fromkeys(_MAPS, _SUBSCHEMAS_BY_NAME),
        **dict.fromkeys(("maxItems", "maxLength", "maximum", "minItems", "minLength", "minimum"), _NUMBER),
        **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum"), _BOUND),
        **dict.fromkeys(("format", "pattern"), _TEXT),
        "enum": {"type": "array"},
        "items": {"if": {"type": "array"}, "then": _SUBSCHEMAS, "else": _SUBSCHEMA},
        "required": {"type": "array", "items": _TEXT},
        "type": {"if": {"type": "array"}, "then": {"items": _TYPES}, "else": _TYPES},
    },
}
"""What is read of a schema here, and by who makes a grammar of it, in any draft: what one draft knows as a keyword is
anything at all in another, and in what it passes over.
"""
_SHAPED = jsonschema_rs.validator_for(_SHAPE)
_NOT_STRICT = (
    "allOf",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "not",
    "oneOf",
    "patternProperties",
    "then",
    "unevaluatedProperties",
)


@dataclass(frozen=True)
class Blame:
    """What the refusal of a schema names: the field that holds it, and the code that its API's clients know."""

    param: str
    code: str = "invalid_json_schema"

    def refusal(self, message: str, place: str = "") -> BadInput:
        """The error to raise. `place` is where in the schema."""
        where = f"{self.param}{place}"
        return BadInput(f"Invalid JSON schema at `{where[:300]}`: {message}", param=self.param, code=self.code)


def checked_schema(value: Any, blame: Blame, *, strict: bool) -> Schema:
    """The schema, if an answer can be held to it. Raises BadInput with the place at fault.

    References must lead somewhere within the schema. `strict` demands what OpenAI's strict mode does: every object
    closed, every property required, and no keyword that such a grammar has no words for.
    """
    if not isinstance(value, dict):
        raise blame.refusal(f"it is {kind_of(value)}; it must be an object.")
    _refuse_too_large(value, blame)
    places = list(_subschemas(value, ""))
    _refuse_strange_references(value, places, blame)
    _refuse_many_patterns(places, blame)
    _refuse_malformed(value, blame)
    if strict:
        _refuse_loose(value, places, blame)
    return value


def _refuse_too_large(value: Schema, blame: Blame) -> None:
    if is_deeper(value, _MAX_LEVELS):
        raise blame.refusal(f"it is nested deeper than {_MAX_LEVELS} levels. Make it flatter.")
    size = len(orjson.dumps(value))
    if size > _MAX_BYTES:
        raise blame.refusal(f"it has {size} bytes; at most {_MAX_BYTES} are read. Make it smaller.")


def _refuse_strange_references(root: Schema, places: list[tuple[str, Schema]], blame: Blame) -> None:
    """Nothing is fetched, and a reference that only leads to references again, in a circle, describes no value.

    Nor may one lead to where no schemas stand: nobody has looked, or will look, at what is there.
    """
    known = {id(schema) for _, schema in places}
    ended: set[int] = set()
    for place, schema in places:
        passed: list[int] = []
        target: Any = schema
        while isinstance(target, dict) and id(target) not in ended and (name := _reference_in(target)):
            if id(target) in passed:
                raise blame.refusal("its references lead in a circle, and describe nothing.", place)
            passed.append(id(target))
            reference = _checked_reference(name, target[name], place, blame)
            target = referred(root, reference)
            if id(target) not in known and not isinstance(target, bool):
                raise blame.refusal(f"`$ref` {reference[:100]!r} leads to no schema. Put that into `$defs`.", place)
        ended.update(passed)


def _reference_in(schema: Schema) -> str | None:
    return next((name for name in _REFERENCES if name in schema), None)


def _checked_reference(name: str, reference: Any, place: str, blame: Blame) -> str:
    if name == "$ref" and isinstance(reference, str) and f"{reference}/".startswith("#/"):
        return reference
    raise blame.refusal(
        f"{name} {str(reference)[:100]!r}: only a `$ref` within this schema is followed, '#' or '#/$defs/…', and "
        "nothing is fetched.",
        place,
    )


def _refuse_many_patterns(places: list[tuple[str, Schema]], blame: Blame) -> None:
    patterns = sum(("pattern" in schema) + len(_members(schema, "patternProperties")) for _, schema in places)
    if patterns > _MAX_PATTERNS:
        raise blame.refusal(f"it has {patterns} regular expressions; at most {_MAX_PATTERNS} are read.")


def _members(schema: Schema, name: str) -> Mapping[str, Any]:
    value = schema.get(name)
    return value if isinstance(value, dict) else {}


def _refuse_malformed(value: dict[str, Any], blame: Blame) -> None:
    """By the draft that it names, else the newest; with every reference followed and every pattern compiled."""
    try:
        jsonschema_rs.validator_for(value, retriever=_fetch_nothing, pattern_options=_PATTERNS)
        _SHAPED.validate(value)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as fault:
        place = "".join(f".{part}" for part in getattr(fault, "instance_path", ()))
        raise blame.refusal(f"{str(getattr(fault, 'message', fault))[:300]}.", place) from fault


def _fetch_nothing(uri: str) -> Any:
    raise LookupError(f"{uri} is not fetched")


def _subschemas(schema: Any, place: str) -> Iterator[tuple[str, Schema]]:
    """The schema and every schema in it, with its place; what is only data, as in `enum`, is not looked into."""
    if not isinstance(schema, dict):
        return
    yield place, schema
    for name in _ONE:
        yield from _subschemas(schema.get(name), f"{place}.{name}")
    for name in _LISTS:
        if isinstance(schema.get(name), list):
            for index, part in enumerate(schema[name]):
                yield from _subschemas(part, f"{place}.{name}[{index}]")
    for name in _MAPS:
        if isinstance(schema.get(name), dict):
            for key, part in schema[name].items():
                yield from _subschemas(part, f"{place}.{name}.{key}")


def _refuse_loose(root: Schema, places: list[tuple[str, Schema]], blame: Blame) -> None:
    """What OpenAI's strict mode refuses, by the place."""
    if root.get("type") != "object" or "anyOf" in root:
        raise blame.refusal("with `strict: true` its top level must be of type 'object', without `anyOf`.")
    for place, schema in places:
        for name in _NOT_STRICT:
            if name in schema:
                raise blame.refusal(f"`{name}` is not allowed with `strict: true`.", place)
        if _is_object(schema):
            _refuse_loose_object(schema, place, blame)
    _refuse_beyond_strict_bounds(places, blame)


def _is_object(schema: Schema) -> bool:
    kind = schema.get("type")
    return kind == "object" or (isinstance(kind, list) and "object" in kind) or "properties" in schema


def _refuse_loose_object(schema: Schema, place: str, blame: Blame) -> None:
    if schema.get("additionalProperties") is not False:
        raise blame.refusal("with `strict: true` every object needs `additionalProperties: false`.", place)
    properties, required = schema.get("properties", {}), schema.get("required", [])
    optional = [name for name in properties if name not in required]
    if optional:
        raise blame.refusal(
            f"with `strict: true` every property is in `required`; {optional[0][:64]!r} is not. Let an optional one "
            "be null: `type: [string, null]`.",
            place,
        )


def _refuse_beyond_strict_bounds(places: list[tuple[str, Schema]], blame: Blame) -> None:
    properties = sum(len(schema.get("properties", ())) for _, schema in places)
    if properties > _MAX_STRICT_PROPERTIES:
        raise blame.refusal(f"it has {properties} properties; with `strict: true` at most {_MAX_STRICT_PROPERTIES}.")
    choices = sum(len(schema.get("enum", ())) for _, schema in places)
    if choices > _MAX_STRICT_CHOICES:
        raise blame.refusal(f"it has {choices} values in `enum`; with `strict: true` at most {_MAX_STRICT_CHOICES}.")
    for place, _ in places:
        if place.count(".properties.") > _MAX_STRICT_OBJECTS:
            raise blame.refusal(f"with `strict: true` objects may be {_MAX_STRICT_OBJECTS} deep.", place)
