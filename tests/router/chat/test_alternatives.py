"""How many ways a grammar keeps open at once, and the bound on them."""

from typing import Any

import pytest

from zooserve.errors import Unsupported
from zooserve_router.chat.alternatives import alternatives
from zooserve_router.chat.enforceable import refuse_unenforced

NULL = {"type": "null"}


def closed(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def doubling(levels: int) -> dict[str, Any]:
    """A schema of a few lines that can be gone through in 2^levels ways."""
    defs: dict[str, Any] = {str(n): {"anyOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(levels)}
    return {"$ref": "#/$defs/0", "$defs": {**defs, str(levels): NULL}}


CALLS = [closed({"name": {"const": name}, "of": {"enum": [1, 2, 3]}}, ["name"]) for name in ("a", "b")]
TREE = {
    "$ref": "#/$defs/tree",
    "$defs": {"tree": {"anyOf": [NULL, closed({"left": {"$ref": "#/$defs/tree"}}, ["left"])]}},
}


@pytest.mark.parametrize(
    ("schema", "ways"),
    [
        (NULL, 1),
        ({"enum": ["a", "b", "c"]}, 3),
        ({"type": "array", "items": {"enum": [1, 2]}, "maxItems": 1000}, 2),
        (closed({"a": NULL, "b": NULL, "c": {"enum": [1, 2]}}, ["a"]), 3),
        ({"anyOf": [{"enum": [1, 2]}, NULL]}, 3),
        ({"anyOf": CALLS}, 3),
        ({"prefixItems": [NULL, {"enum": [1, 2]}]}, 2),
        (TREE, 2),
        (doubling(60), 2**60),
        (doubling(1000), 2**1000),
        ({"type": "string", "pattern": "^[0-9]{4}-(a|b)x?$"}, 3),
        ({"type": "string", "pattern": "^(a?){0,1000}$"}, 1002),
        ({"type": "string", "pattern": "^" + "a*" * 30 + "$"}, 31),
        ({"type": "string", "pattern": r"^\|[|?*]\?$"}, 1),
    ],
)
def test_the_ways_that_may_be_open_at_once_are_counted(schema: dict[str, Any], ways: int) -> None:
    assert alternatives(schema, schema) == ways


@pytest.mark.parametrize("schema", [{"enum": list(range(257))}, doubling(9), doubling(1000)])
def test_a_schema_with_more_than_an_engine_gets_through_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(Unsupported, match="at most 256") as refusal:
        refuse_unenforced(schema, "the answer", "response_format")
    assert refusal.value.code == "unsupported_json_schema"


def test_as_many_values_as_there_are_countries_are_taken() -> None:
    refuse_unenforced({"enum": list(range(256))}, "the answer", "response_format")
