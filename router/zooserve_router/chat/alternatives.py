"""How many ways to go on a grammar of a JSON schema keeps open at once, at most.

llama.cpp tries each token of the vocabulary against each of them, on the thread that decodes for everybody: 300 values
of an `enum` took two seconds a token, and `$defs` that name the next one twice double with each.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from zooserve_router.references import referred

__all__ = ["alternatives"]

Schema = Mapping[str, Any]

_PIECE = re.compile(r"\\.|\[[^\]]*\]|[()|*+?]|\{(?P<least>\d+)(?P<range>,(?P<most>\d*))?\}|.", re.DOTALL)


def alternatives(schema: Any, root: Schema) -> int:
    """An upper bound for a sound schema. A schema within itself counts once: how deep it goes, the answer decides."""
    ways: dict[int, int] = {}
    for part in _inner_first(schema, root):
        ways[id(part)] = _of(part, root, ways)
    return ways.get(id(schema), 1)


def _inner_first(schema: Any, root: Schema) -> list[Schema]:
    """What it is made of, each part once and after its own parts. Chains of references may be long: no recursion."""
    ordered: list[Schema] = []
    met: set[int] = set()
    left = [(schema, False)]
    while left:
        part, opened = left.pop()
        if opened:
            ordered.append(part)
        elif isinstance(part, Mapping) and id(part) not in met:
            met.add(id(part))
            left += [(part, True), *((inner, False) for inner in _inner(part, root))]
    return ordered


def _inner(schema: Schema, root: Schema) -> Sequence[Any]:
    if "$ref" in schema:
        return [referred(root, schema["$ref"])]
    if options := schema.get("oneOf") or schema.get("anyOf"):
        return list(options)
    return [
        *schema.get("properties", {}).values(),
        schema.get("additionalProperties"),
        schema.get("items"),
        *schema.get("prefixItems", ()),
    ]


def _of(schema: Schema, root: Schema, known: Mapping[int, int]) -> int:
    found = [known.get(id(part), 1) for part in _inner(schema, root)]
    if "$ref" in schema:
        return found[0]
    if options := schema.get("oneOf") or schema.get("anyOf"):
        return max(len(found), *found) if _told_by_first(options) else sum(found)
    if "enum" in schema:
        return len(schema["enum"])
    return max(*found, _optional(schema) + 1, _of_pattern(schema.get("pattern", "")))


def _optional(schema: Schema) -> int:
    """The properties that may be left out: any of them may come next."""
    return len(schema.get("properties", {}).keys() - set(schema.get("required", ())))


def _told_by_first(options: Sequence[Any]) -> bool:
    """Whether all are objects whose first property has a constant of its own, so that one is left after it."""
    seen: list[Any] = []
    for option in options:
        properties = option.get("properties") if isinstance(option, Mapping) else None
        if not properties:
            return False
        name, first = next(iter(properties.items()))
        constant = isinstance(first, Mapping) and "const" in first and name in option.get("required", ())
        if not constant or first["const"] in seen:
            return False
        seen.append(first["const"])
    return True


def _of_pattern(pattern: str) -> int:
    """One more for each alternative and each part that may be left out; those of a counted group, for each time."""
    groups = [0]
    group = 0
    for piece in _PIECE.finditer(pattern):
        text = piece.group()
        if text == "(":
            groups.append(0)
        elif text == ")":
            group = groups.pop()
            groups[-1] += group
        elif text in ("|", "?", "*") or piece["least"] == "0":
            groups[-1] += 1
        if piece["least"]:
            times = int(piece["most"] or piece["least"])
            groups[-1] += group * max(times - 1, 0)
        if text != ")":
            group = 0
    return 1 + groups[0]
