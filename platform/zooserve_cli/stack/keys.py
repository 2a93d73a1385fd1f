"""Whether a configuration file has the keys, types and values that its program takes: by a tree of what was recorded.

A tree is written in YAML, beside the source it was read from (`recorded/`):

    endpoint: address            a scalar of this kind: text, bool, int, float, duration, address, scalar or any
    level: [one of, info, warn]  one of these texts
    policies: [{name: text}]     a list of such
    headers: {"*": text}         a mapping whose keys are its author's

A value with a `${` in it is filled in when the program starts, and fits everything.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from zooserve_cli.stack.tree import Node
from zooserve_ensembles.checking.findings import Finding, Rule, Severity
from zooserve_ensembles.checking.reading import did_you_mean

__all__ = ["RULES", "UNKNOWN", "VALUE", "key_findings"]

UNKNOWN = Rule(
    "config-unknown-key", Severity.ERROR, "A program's configuration has a key that this release does not know"
)
VALUE = Rule(
    "config-value", Severity.ERROR, "A value in a program's configuration is not of the kind that the key takes"
)
RULES = (UNKNOWN, VALUE)

_ADDRESS = re.compile(r"(?:\w+:/{2,3})?(?:\[[0-9a-fA-F:]*\]|[\w.\-]*):(\d{1,5})")
_DURATION = re.compile(r"-?(\d+(\.\d+)?(ns|us|µs|ms|s|m|h|d|w))+")
_ONE_OF = "one of"
_ANY_KEY = "*"


def key_findings(node: Node, tree: Any, where: str) -> Iterator[Finding]:
    """What of a part of a file does not fit its tree; `where` is how messages call that part."""
    if not node.is_there or tree == "any" or "${" in node.text:
        return
    if isinstance(tree, Mapping):
        yield from _mapping(node, tree, where)
    elif isinstance(tree, list) and tree[:1] == [_ONE_OF]:
        if node.text not in tree[1:]:
            yield VALUE.at(node.place, f"{where} is one of {', '.join(tree[1:])}; not {_told(node)}")
    elif isinstance(tree, list):
        yield from _list(node, tree[0], where)
    elif not _FITS[tree](node):
        yield VALUE.at(node.place, f"{where} takes {_KINDS[tree]}, not {_told(node)}")


def _mapping(node: Node, tree: Mapping[str, Any], where: str) -> Iterator[Finding]:
    if not node.is_mapping:
        yield VALUE.at(node.place, f"{where} takes keys with values, not {_told(node)}")
        return
    for key, inner in node.entries.items():
        if (below := tree.get(key, tree.get(_ANY_KEY))) is None:
            yield UNKNOWN.at(inner.key_place, f"{where} has no {key}. {did_you_mean(key, list(tree))}".strip())
        else:
            yield from key_findings(inner, below, f"{where}.{key}")


def _list(node: Node, tree: Any, where: str) -> Iterator[Finding]:
    if not node.is_list:
        yield VALUE.at(node.place, f"{where} takes a list, not {_told(node)}")
        return
    for element in node.elements:
        yield from key_findings(element, tree, where)


def _told(node: Node) -> str:
    if node.is_scalar:
        return repr(node.value) if isinstance(node.value, str) else node.text
    return "a list" if node.is_list else "keys with values"


def _is_address(text: str) -> bool:
    found = _ADDRESS.fullmatch(text)
    return found is not None and 0 < int(found[1]) < 2**16


def _is_number(node: Node) -> bool:
    return isinstance(node.value, int | float) and not isinstance(node.value, bool)


_FITS: dict[str, Callable[[Node], bool]] = {
    "text": lambda node: isinstance(node.value, str),
    "bool": lambda node: isinstance(node.value, bool),
    "int": lambda node: isinstance(node.value, int) and not isinstance(node.value, bool),
    "float": _is_number,
    "duration": lambda node: isinstance(node.value, str) and bool(_DURATION.fullmatch(node.value)),
    "address": lambda node: isinstance(node.value, str) and _is_address(node.value),
    "scalar": lambda node: node.is_scalar,
}
_KINDS = {
    "text": "a text",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "duration": "a time with its unit, as 10s or 5m",
    "address": "a host and a port, as 0.0.0.0:4317",
    "scalar": "one value",
}
