"""What llama.cpp's grammars enforce of a JSON schema; the rest is refused.

Its server takes any schema, makes a grammar of the keywords that it knows in the order that it looks for them, and
passes over the others without a word, or with one in its log ("accepting any string"): `minimum` of a number, a pattern
with `\\d`, a second keyword beside `$ref`. An answer would then only look as if it were held to the schema. What stands
here was found by asking the server of xllamacpp 2026.10.11549 and reading its answers.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any

from zooserve.errors import Unsupported
from zooserve_router.chat.alternatives import alternatives
from zooserve_router.references import referred

__all__ = ["refuse_unenforced"]

Schema = Mapping[str, Any]

_OF_TYPE: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "object": frozenset(
            {
                "properties",
                "required",
                "additionalProperties",
                "patternProperties",
                "propertyNames",
                "minProperties",
                "maxProperties",
                "dependencies",
                "dependentRequired",
                "dependentSchemas",
                "unevaluatedProperties",
            }
        ),
        "array": frozenset(
            {
                "items",
                "prefixItems",
                "additionalItems",
                "minItems",
                "maxItems",
                "uniqueItems",
                "contains",
                "minContains",
                "maxContains",
                "unevaluatedItems",
            }
        ),
        "string": frozenset({"pattern", "format", "minLength", "maxLength"}),
        "integer": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
        "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
        "boolean": frozenset(),
        "null": frozenset(),
    }
)
"""The keywords that say something of a value of each type, and nothing of others."""

_OF_ANY = frozenset({"$ref", "$dynamicRef", "$recursiveRef", "anyOf", "oneOf", "allOf", "not", "if", "enum", "const"})
_IS: Mapping[str, Callable[[Any], bool]] = MappingProxyType(
    {
        "object": lambda value: isinstance(value, dict),
        "array": lambda value: isinstance(value, list),
        "string": lambda value: isinstance(value, str),
        "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
        "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
        "boolean": lambda value: isinstance(value, bool),
        "null": lambda value: value is None,
    }
)
_SAYS_NOTHING: Mapping[str, Any] = MappingProxyType(
    {"minItems": 0, "minLength": 0, "minProperties": 0, "uniqueItems": False, "required": [], "patternProperties": {}}
)
_FORMATS = frozenset({"date", "date-time", "time", "uuid"})
_LARGEST = 10**15
_MAX_ALTERNATIVES = 256
"""A token of as many holds everybody up for a second, on two cores."""
_TOKEN = re.compile(
    r"""(?P<open>\((?:\?:)?(?![?*+{]))|(?P<close>\))|(?P<bar>\|)"""
    r"""|(?P<times>[*+?]|\{\d+(?:,\d*)?\})"""
    r"""|(?P<one>\\[-.$|?*+(){}\[\]]|[ !#%&',/:;<=>@`~\w-])"""
    r"""|\[(?P<many>[^\^\[\]\\"][^\[\]\\"]*)\]""",
    re.ASCII,
)


def refuse_unenforced(schema: Schema, whose: str, param: str) -> None:
    """Raises Unsupported naming the first keyword that an answer could break, and where it stands.

    The schema is sound, as the edge has found; `whose` it is, the message says.
    """
    faults = ((place, _fault(part, schema)) for place, part in _parts(schema, ""))
    for place, fault in chain(faults, _fault_of_size(schema)):
        if fault is not None:
            raise Unsupported(
                f"The JSON schema of {whose} asks for what this model's engine does not enforce: {fault}, at "
                f"`{place[:200] or '.'}`. Leave it out and check it yourself, or say it with what is enforced.",
                param=param,
                code="unsupported_json_schema",
            )


def _fault_of_size(schema: Schema) -> Iterator[tuple[str, str]]:
    """What of the whole would hold the engine up. Asked last: it takes the parts for such as are enforced."""
    ways = alternatives(schema, schema)
    if ways > _MAX_ALTERNATIVES:
        yield (
            "",
            (
                f"{min(ways, 10**6)} values, options, optional properties or parts of a pattern to choose from at once "
                f"(at most {_MAX_ALTERNATIVES})"
            ),
        )


def _parts(schema: Any, place: str) -> Iterator[tuple[str, Any]]:
    """The schema and every schema in it that a grammar is made of, with its place."""
    yield place, schema
    if not isinstance(schema, Mapping):
        return
    for name in ("$defs", "definitions", "properties"):
        for key, part in schema.get(name, {}).items():
            yield from _parts(part, f"{place}.{name}.{key}")
    for name in ("anyOf", "oneOf", "prefixItems"):
        for index, part in enumerate(schema.get(name, ())):
            yield from _parts(part, f"{place}.{name}[{index}]")
    for name in ("items", "additionalProperties"):
        if name in schema and not (name == "additionalProperties" and isinstance(schema[name], bool)):
            yield from _parts(schema[name], f"{place}.{name}")


def _fault(schema: Any, root: Schema) -> str | None:
    """What of one schema, without those in it, is not enforced; None if all is."""
    if not isinstance(schema, Mapping):
        return "a schema that is no object"
    for name in ("$ref", "oneOf", "anyOf"):
        if name in schema:
            return _beside(schema, name) or (_overlap(schema[name], root) if name == "oneOf" else None)
    kinds = _kinds(schema)
    for name in ("const", "enum"):
        if name in schema:
            return _beside(schema, name) or _wrong_values(schema, name)
    faults = (_fault_of(kind, schema) for kind in kinds) if kinds else iter([_unread(schema, _all_keywords(), ())])
    return next((fault for fault in faults if fault is not None), None)


def _kinds(schema: Schema) -> list[str]:
    """The types of values that it allows; without `type`, the one that the grammar takes it for, if there is one."""
    kinds = schema.get("type")
    if kinds is not None:
        return [kinds] if isinstance(kinds, str) else list(kinds)
    if schema.keys() & {"properties", "additionalProperties"}:
        return ["object"]
    if schema.keys() & {"items", "prefixItems"}:
        return ["array"]
    return ["string"] if "pattern" in schema else []


def _all_keywords() -> frozenset[str]:
    return frozenset().union(*_OF_TYPE.values())


def _unread(schema: Schema, keywords: frozenset[str], read: Sequence[str]) -> str | None:
    """The first of these keywords that the schema has, that means something, and that is not read."""
    for name, value in schema.items():
        silent = name in _SAYS_NOTHING and value == _SAYS_NOTHING[name]
        if name in keywords | _OF_ANY and name not in read and not silent:
            return f"`{name}`"
    return None


def _beside(schema: Schema, name: str) -> str | None:
    """What stands beside a keyword that alone is read. A value's own type may be said too."""
    read = (name, "type") if name in ("const", "enum") else (name,)
    others = _unread(schema, _all_keywords() | {"type"}, read)
    return f"{others} beside `{name}`" if others is not None else None


def _wrong_values(schema: Schema, name: str) -> str | None:
    values = schema[name] if name == "enum" else [schema[name]]
    kinds = _kinds(schema)
    if kinds and not all(any(_IS[kind](value) for kind in kinds) for value in values):
        return f"a value in `{name}` that is not of its `type`"
    return None


def _fault_of(kind: str, schema: Schema) -> str | None:
    """What of the keywords for this type is not enforced."""
    if kind == "object":
        return _fault_of_object(schema)
    if kind == "array":
        return _fault_of_array(schema)
    if kind == "string":
        return _fault_of_string(schema)
    return _fault_of_integer(schema) if kind == "integer" else _unread(schema, _OF_TYPE.get(kind, frozenset()), ())


def _fault_of_object(schema: Schema) -> str | None:
    missing = [name for name in schema.get("required", ()) if name not in schema.get("properties", {})]
    if missing:
        return f"`required` of {missing[0][:64]!r}, which is not among the `properties`"
    return _unread(schema, _OF_TYPE["object"], ("properties", "required", "additionalProperties"))


def _fault_of_array(schema: Schema) -> str | None:
    least, most = schema.get("minItems", 0), schema.get("maxItems")
    if "prefixItems" not in schema:
        return _backwards(least, most) or _unread(schema, _OF_TYPE["array"], ("items", "minItems", "maxItems"))
    # The grammar has exactly as many items as there are prefixes, and reads nothing else.
    length = len(schema["prefixItems"])
    if least > length or (most is not None and most < length):
        return f"a count other than that of its {length} `prefixItems`"
    return _unread(schema, _OF_TYPE["array"], ("prefixItems", "minItems", "maxItems"))


def _fault_of_string(schema: Schema) -> str | None:
    if "pattern" in schema:
        fault = None if _is_plain(schema["pattern"]) else _advice_on(schema["pattern"])
        return fault or _unread(schema, _OF_TYPE["string"], ("pattern",))
    if "format" in schema:
        known = schema["format"] in _FORMATS
        return _unread(schema, _OF_TYPE["string"], ("format",) if known else ())
    lengths = _backwards(schema.get("minLength", 0), schema.get("maxLength"))
    return lengths or _unread(schema, _OF_TYPE["string"], ("minLength", "maxLength"))


def _advice_on(pattern: str) -> str:
    return (
        f"the `pattern` {pattern[:64]!r} (enforced are patterns from ^ to $ of printable ASCII, groups, alternatives, "
        "counts and plain ranges as in [0-9A-Fa-f], without a quote or a backslash among what they match)"
    )


def _fault_of_integer(schema: Schema) -> str | None:
    bounds = {name: schema[name] for name in _OF_TYPE["integer"] - {"multipleOf"} if name in schema}
    for name, bound in bounds.items():
        if not isinstance(bound, int) or isinstance(bound, bool) or abs(bound) > _LARGEST:
            return f"`{name}` that is no integer of at most 15 digits"
    for plain, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if plain in bounds and exclusive in bounds:
            return f"`{plain}` and `{exclusive}` together"
    low = bounds.get("minimum", bounds.get("exclusiveMinimum", -_LARGEST) + 1)
    high = bounds.get("maximum", bounds.get("exclusiveMaximum", _LARGEST) - 1)
    return _backwards(low, high) or _unread(schema, _OF_TYPE["integer"], tuple(bounds))


def _backwards(low: float, high: float | None) -> str | None:
    return "bounds that leave nothing between them" if high is not None and low > high else None


def _overlap(options: Sequence[Any], root: Schema) -> str | None:
    """`oneOf` is read as `anyOf`: the same where no value can fit two of them, told by type or by a fixed property."""
    found = [_resolved(option, root) for option in options]
    kinds = [kind for option in found for kind in _kinds(option)]
    apart = all(_kinds(option) for option in found) and len(set(kinds)) == len(kinds)
    if apart and not {"integer", "number"} <= set(kinds):
        return None
    if any(_tells_apart(name, found) for name in found[0].get("properties", {})):
        return None
    return "`oneOf` of schemas that a value may fit two of"


def _resolved(option: Any, root: Schema) -> Schema:
    """The schema that a reference leads to; the edge has seen to it that it leads somewhere."""
    while isinstance(option, Mapping) and isinstance(option.get("$ref"), str):
        option = referred(root, option["$ref"])
    return option if isinstance(option, Mapping) else {}


def _tells_apart(name: str, options: Sequence[Schema]) -> bool:
    """Whether every option needs this property, each with other values."""
    seen: list[Any] = []
    for option in options:
        part = option.get("properties", {}).get(name)
        if name not in option.get("required", ()) or not isinstance(part, Mapping):
            return False
        values = [part["const"]] if "const" in part else part.get("enum", [])
        if not values or any(value in seen for value in values):
            return False
        seen += values
    return True


def _is_plain(pattern: str) -> bool:
    """Whether the pattern is of the kind that a grammar can be made of, all of which may stand in JSON as it is."""
    if not (pattern.startswith("^") and pattern.endswith("$")) or pattern.endswith("\\$"):
        return False
    at, depth, counted = 1, 0, True
    while at < len(pattern) - 1:
        token = _TOKEN.match(pattern, at, len(pattern) - 1)
        if token is None or (token.lastgroup == "times" and counted):
            return False
        if token.lastgroup == "many" and not _is_plain_class(token["many"]):
            return False
        depth += (token.lastgroup == "open") - (token.lastgroup == "close")
        if depth < 0:
            return False
        counted = token.lastgroup in ("times", "open", "bar")
        at = token.end()
    return depth == 0


def _is_plain_class(members: str) -> bool:
    """Whether no range of a class takes in a quote, a backslash, or what is not printable ASCII."""
    spans = re.findall(r"(.)-(.)|(.)", members, re.DOTALL)
    for low, high, alone in spans:
        first, last = (ord(alone), ord(alone)) if alone else (ord(low), ord(high))
        if first > last or first < ord(" ") or last > ord("~") or first <= ord('"') <= last or first <= 0x5C <= last:
            return False
    return True
