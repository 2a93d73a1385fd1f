"""A schema that llama.cpp's grammar would pass over in part is refused by name; one that it enforces is not."""

from typing import Any

import pytest

from zooserve.errors import Unsupported
from zooserve_router.chat.enforceable import refuse_unenforced


def closed(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def text(pattern: str) -> dict[str, Any]:
    return {"type": "string", "pattern": pattern}


CAT = closed(kind={"const": "cat"}, lives={"type": "integer"})
DOG = closed(kind={"const": "dog"})

ENFORCED: dict[str, dict[str, Any]] = {
    "a closed object": closed(a={"type": "integer", "minimum": 1, "maximum": 5, "description": "from 1 to 5"}),
    "an open object": {"type": "object"},
    "any value": {},
    "null among types": closed(a={"type": ["string", "null"], "maxLength": 3}),
    "a bound that is of no type there": {"type": ["string", "null"], "minimum": 3},
    "values": closed(a={"type": "string", "enum": ["x", "y"]}, b={"const": None}),
    "a list": {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 3},
    "a tuple": {"type": "array", "prefixItems": [{"type": "number"}, {}], "minItems": 2, "maxItems": 2},
    "a choice": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    "a tree": {"$ref": "#/$defs/t", "$defs": {"t": closed(left={"anyOf": [{"$ref": "#/$defs/t"}, {"type": "null"}]})}},
    "pets told apart": {"oneOf": [{"$ref": "#/$defs/c"}, DOG], "$defs": {"c": CAT}},
    "types told apart": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
    "dates": closed(a={"type": "string", "format": "date-time"}),
    "what says nothing": {"type": "array", "items": {}, "uniqueItems": False, "minItems": 0},
    "a title": {"title": "T", "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "boolean"},
    "a property called enum": closed(enum={"type": "integer"}, multipleOf={"type": "integer"}),
}

UNENFORCED: dict[str, tuple[dict[str, Any], str]] = {
    "minimum": (closed(a={"type": "number", "minimum": 0.5}), r"`minimum`, at `\.properties\.a`"),
    "multiples": (closed(a={"type": "integer", "multipleOf": 7}), "`multipleOf`"),
    "half a bound": ({"type": "integer", "minimum": 0.5}, "no integer"),
    "two lower bounds": ({"type": "integer", "minimum": 1, "exclusiveMinimum": 3}, "together"),
    "nothing between": ({"type": "integer", "minimum": 5, "maximum": 3}, "nothing between"),
    "nothing between lengths": ({"type": "string", "minLength": 5, "maxLength": 3}, "nothing between"),
    "not": ({"not": {"type": "string"}}, "`not`"),
    "if": ({"type": "string", "if": {"const": "a"}, "then": {"const": "b"}}, "`if`"),
    "all of": ({"allOf": [{"type": "string"}]}, "`allOf`"),
    "unique items": ({"type": "array", "items": {}, "uniqueItems": True}, "`uniqueItems`"),
    "contains": ({"type": "array", "contains": {}}, "`contains`"),
    "names": ({"type": "object", "propertyNames": {"maxLength": 2}}, "`propertyNames`"),
    "required from nowhere": ({"type": "object", "properties": {}, "required": ["x"]}, "'x'"),
    "beside a reference": ({"$ref": "#/$defs/x", "maxLength": 2, "$defs": {"x": {}}}, "`maxLength` beside"),
    "beside a choice": ({"anyOf": [{}], "type": "string"}, "`type` beside `anyOf`"),
    "beside values": ({"enum": ["a", "bc"], "minLength": 2}, "`minLength` beside `enum`"),
    "a value of another type": ({"type": "integer", "const": "x"}, "not of its `type`"),
    "a choice that two may fit": ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "fit two of"),
    "pets alike": ({"oneOf": [CAT, CAT]}, "fit two of"),
    "a format": ({"type": "string", "format": "email"}, "`format`"),
    "length of a date": ({"type": "string", "format": "date", "maxLength": 3}, "`maxLength`"),
    "length of a pattern": ({"type": "string", "pattern": "^a+$", "maxLength": 3}, "`maxLength`"),
    "a length of anything": ({"minLength": 5}, "`minLength`"),
    "more than the prefixes": ({"type": "array", "prefixItems": [{}], "maxItems": 0}, "count"),
    "items after prefixes": ({"type": "array", "prefixItems": [{}], "items": {}}, "`items`"),
    "a schema that is none": (closed(a=True), "no object"),
    "deep in a definition": ({"$defs": {"x": {"type": "number", "maximum": 1}}}, r"\.\$defs\.x"),
    "in a list": ({"type": "array", "items": {"type": "number", "maximum": 1}}, r"at `\.items`"),
    "in what is added": ({"type": "object", "additionalProperties": {"not": {}}}, "`not`"),
}

PLAIN = ["^a$", "^[a-z]+@[a-z]+$", "^(a|bc){2,3}$", "^(?:x|)[0-9A-F-]*$", r"^v[0-9]\.[0-9]?$", "^$", "^[.]$", "^a,b c$"]
NOT_PLAIN = [
    "ab",
    r"^\d$",
    r"^\w+$",
    "^.$",
    "^[^a]$",
    '^"$',
    r"^\\$",
    '^[a"]$',
    "^[ -~]$",
    "^[A-z]$",
    "^a+?$",
    "^a++$",
    "^(?=a)b$",
    "^(a$",
    "^a)$",
    "^é$",
    "^[é]$",
    r"^a\$",
    r"^(a)\1$",
    "^a$|^b$",
    "^[[:alpha:]]$",
    "^[\t]$",
]


@pytest.mark.parametrize("schema", ENFORCED.values(), ids=ENFORCED.keys())
def test_what_is_enforced_passes(schema) -> None:
    refuse_unenforced(schema, "the answer", "response_format")


@pytest.mark.parametrize(("schema", "named"), UNENFORCED.values(), ids=UNENFORCED.keys())
def test_what_is_not_enforced_is_refused_by_name(schema, named) -> None:
    with pytest.raises(Unsupported, match=named) as refused:
        refuse_unenforced(schema, "the answer", "response_format")
    assert refused.value.param == "response_format"
    assert refused.value.code == "unsupported_json_schema"


@pytest.mark.parametrize("pattern", PLAIN)
def test_patterns_that_a_grammar_can_be_made_of_pass(pattern) -> None:
    refuse_unenforced(text(pattern), "the answer", "response_format")


@pytest.mark.parametrize("pattern", NOT_PLAIN)
def test_other_patterns_are_refused(pattern) -> None:
    with pytest.raises(Unsupported, match="pattern"):
        refuse_unenforced(text(pattern), "the answer", "response_format")
