"""Schemas of requests: what is no schema, or leads elsewhere, or has no end, is refused with its place."""

from typing import Any

import pytest

from zooserve.errors import BadInput
from zooserve_router.endpoints.schemas import Blame, checked_schema

BLAME = Blame("form")


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"not": schema}
    return schema


def closed(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def strictly_nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = closed(a=schema)
    return schema


TEXT = {"type": "string"}

SOUND: dict[str, Any] = {
    "everything": {},
    "an object": {"type": "object", "properties": {"a": TEXT}},
    "an older draft": {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 3, "exclusiveMinimum": True},
    "a reference": {"$defs": {"a": TEXT}, "properties": {"a": {"$ref": "#/$defs/a"}}},
    "a tree of itself": {"type": "object", "properties": {"next": {"$ref": "#"}}},
    "a reference to a reference": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": TEXT}, "$ref": "#/$defs/a"},
    "a reference into a list": {"anyOf": [TEXT, {"$ref": "#/anyOf/0"}]},
    "a reference with odd characters": {"$defs": {"a/b~c": TEXT}, "$ref": "#/$defs/a~1b~0c"},
    "a reference in percent signs": {"$defs": {"a b%": TEXT}, "$ref": "#/$defs/a%20b%25"},
    "a list of an older draft": {"$schema": "http://json-schema.org/draft-07/schema#", "items": [TEXT, True]},
    "a reference to anything at all": {"$defs": {"a": True}, "$ref": "#/$defs/a"},
    "data that looks like a reference": {"enum": [{"$ref": "http://elsewhere"}]},
    "a property of an odd name": {"properties": {"$ref": TEXT}},
    "a pattern": {"pattern": "^[a-z]{1,20}$"},
    "twenty levels": nested(20),
}


@pytest.mark.parametrize("schema", SOUND.values(), ids=SOUND)
def test_a_sound_schema_comes_out_as_it_is(schema) -> None:
    assert checked_schema(schema, BLAME, strict=False) is schema


DRAFT_7 = "http://json-schema.org/draft-07/schema#"
MISSHAPEN: dict[str, Any] = {
    "type": {"type": "objec"},
    "properties": {"type": "object", "properties": 5},
    "required": {"type": "object", "required": [[]]},
    "enum": {"enum": 5},
    "pattern": {"type": "string", "pattern": 5},
    "format": {"type": "string", "format": []},
    "minItems": {"type": "array", "minItems": "x"},
    "maximum": {"type": "integer", "maximum": "x"},
    "oneOf": {"oneOf": 5},
    "items": {"type": "array", "items": 5},
}

UNSOUND: dict[str, tuple[Any, str]] = {
    "a list": ([], "an array"),
    "null": (None, "null"),
    "no type": ({"type": "objec"}, "form.type"),
    "no type, within": ({"properties": {"a": {"type": 5}}}, "form.properties.a.type"),
    "a required that is no list": ({"required": "a"}, "form.required"),
    "a broken pattern": ({"properties": {"a": {"pattern": "("}}}, "form.properties.a.pattern"),
    "a pattern beyond counting": ({"pattern": "a{99999999999999}"}, "form.pattern"),
    "a pattern of megabytes": ({"pattern": "(a{1000}){900}"}, "form.pattern"),
    "a pattern of parentheses": ({"pattern": "(" * 5000 + ")" * 5000}, "form.pattern"),
    "very many patterns": ({"allOf": [{"pattern": "x"}] * 65}, "65 regular expressions"),
    "very many patterns of names": ({"patternProperties": {str(key): {} for key in range(65)}}, "65 regular"),
    "an unknown draft": ({"$schema": "http://elsewhere/draft"}, "Unknown meta-schema"),
    "a draft of a wrong type": ({"$schema": 5}, "form.$schema"),
    "a remote reference": ({"properties": {"a": {"$ref": "http://elsewhere/a.json"}}}, "nothing is fetched"),
    "a file": ({"$ref": "file:///etc/passwd"}, "nothing is fetched"),
    "a neighbour": ({"$ref": "other.json"}, "nothing is fetched"),
    "an anchor": ({"$ref": "#a", "$defs": {"a": {"$anchor": "a"}}}, "only a `$ref` within"),
    "a dynamic reference": ({"$dynamicRef": "#"}, "only a `$ref` within"),
    "a reference of a wrong type": ({"$ref": 5}, "only a `$ref` within"),
    "a reference to nothing": ({"$ref": "#/$defs/a"}, "/$defs/a"),
    "a reference to itself": ({"$ref": "#"}, "in a circle"),
    "references in a circle": (
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        "in a circle",
    ),
    "a reference to nothing that nothing needs": (
        {"$defs": {"a": {"oneOf": [{"$ref": "#/b"}, TEXT]}}},
        "'#/b' leads to no schema",
    ),
    "a reference to where no schemas stand": (
        {"$ref": "#/components/a", "components": {"a": TEXT}},
        "leads to no schema",
    ),
    "a reference to a list": ({"properties": {"a": {"$ref": "#/anyOf"}}, "anyOf": [TEXT]}, "leads to no schema"),
    **{
        f"what an older draft does not know, {name}": (
            {"$schema": DRAFT_7, "$defs": {"a": part}},
            f"form.$defs.a.{name}",
        )
        for name, part in MISSHAPEN.items()
    },
    "a definition that an older draft does not know": ({"$schema": DRAFT_7, "$defs": 5}, "form.$defs"),
    "a tuple that an older draft does not know": ({"$schema": DRAFT_7, "prefixItems": 5}, "form.prefixItems"),
    "what the newest draft does not know": ({"additionalItems": {"properties": 5}}, "form.additionalItems.properties"),
    "deep nesting": (nested(100), "deeper than 64 levels"),
    "very deep nesting": (nested(800), "deeper than 64 levels"),
    "a large schema": ({"enum": ["x" * 70_000]}, "at most 65536"),
}


@pytest.mark.parametrize(("schema", "says"), UNSOUND.values(), ids=UNSOUND)
@pytest.mark.parametrize("strict", [False, True], ids=["loose", "strict"])
def test_an_unsound_schema_is_refused_with_its_place(schema, says, strict) -> None:
    with pytest.raises(BadInput) as refused:
        checked_schema(schema, BLAME, strict=strict)
    assert says in refused.value.message
    assert (refused.value.param, refused.value.code) == ("form", "invalid_json_schema")
    assert len(refused.value.message) < 1000


STRICT: dict[str, tuple[Any, str]] = {
    "an open object": ({"type": "object", "properties": {}}, "`form`: with `strict: true` every object needs"),
    "an open object within": (closed(a={"type": "object"}), "`form.properties.a`: with `strict: true` every object"),
    "an optional property": ({**closed(a=TEXT), "required": []}, "'a' is not"),
    "a list on top": ({"type": "array", "items": TEXT}, "top level"),
    "a choice on top": ({**closed(), "anyOf": [closed()]}, "top level"),
    "oneOf": (closed(a={"oneOf": [TEXT]}), "`oneOf` is not allowed"),
    "allOf": (closed(a={"allOf": [TEXT]}), "`allOf` is not allowed"),
    "not": (closed(a={"not": TEXT}), "`not` is not allowed"),
    "patterns of names": ({**closed(), "patternProperties": {}}, "`patternProperties` is not allowed"),
    "an object in a list": (closed(a={"type": "array", "items": {"type": "object"}}), "`form.properties.a.items`"),
    "an open definition": ({**closed(), "$defs": {"a": {"type": "object"}}}, "`form.$defs.a`"),
    "eleven objects deep": (strictly_nested(11), "10 deep"),
    "very many choices": (closed(a={"enum": list(range(1001))}), "1001 values"),
}


@pytest.mark.parametrize(("schema", "says"), STRICT.values(), ids=STRICT)
def test_what_is_not_strict_is_refused_where_it_is_to_be(schema, says) -> None:
    assert checked_schema(schema, BLAME, strict=False) is schema
    with pytest.raises(BadInput) as refused:
        checked_schema(schema, BLAME, strict=True)
    assert says in refused.value.message


STRICTLY_SOUND: dict[str, Any] = {
    "nothing in it": closed(),
    "optional by null": closed(a={"type": ["string", "null"]}),
    "a choice within": closed(a={"anyOf": [TEXT, closed(b=TEXT)]}),
    "a tree of itself": closed(next={"anyOf": [{"$ref": "#"}, {"type": "null"}]}),
    "ten objects deep": strictly_nested(10),
}


@pytest.mark.parametrize("schema", STRICTLY_SOUND.values(), ids=STRICTLY_SOUND)
def test_what_is_strict_passes(schema) -> None:
    assert checked_schema(schema, BLAME, strict=True) is schema


def test_a_long_chain_of_references_is_followed_to_its_end() -> None:
    chain: dict[str, Any] = {f"k{index}": {"$ref": f"#/$defs/k{index + 1}"} for index in range(1500)}
    assert checked_schema({"$defs": {**chain, "k1500": TEXT}}, BLAME, strict=False)
    with pytest.raises(BadInput, match="in a circle"):
        checked_schema({"$defs": {**chain, "k1500": {"$ref": "#/$defs/k0"}}}, BLAME, strict=False)
