"""Services over those that they extend, and compose files over each other, as Compose lays them."""

from collections.abc import Callable
from dataclasses import replace

from zooserve_cli.stack.service import named, target_of
from zooserve_cli.stack.tree import Node

__all__ = ["extended", "over"]

_REPLACED = frozenset({"command", "entrypoint", "test"})
"""Lists that the upper one replaces; it adds to all others."""

Services = Callable[[str], Node]
"""The services of a file, by its name; of the same one for an empty name."""


def extended(node: Node, services: Services, seen: tuple[tuple[str, str], ...]) -> Node:
    """The service with what it extends below it. What is not there, or leads in a circle, adds nothing."""
    extends = node["extends"]
    file, base = extends["file"].text, extends["service"].text or extends.text
    if not base or (file, base) in seen or not node.is_mapping:
        return node
    found = services(file)[base]
    if not found.is_mapping:
        return node
    below = extended(found, services if not file else lambda inner: services(inner or file), (*seen, (file, base)))
    kept = {key: inner for key, inner in below.entries.items() if key != "extends"}
    return over(replace(below, value=kept), node)


def over(below: Node, above: Node, key: str = "") -> Node:
    """One part over another: mappings are joined, lists added, `!override` replaces and `!reset` takes away."""
    if above.tag == "!reset":
        return replace(above, value=None)
    if above.tag == "!override" or key in _REPLACED:
        return above
    if below.is_mapping != above.is_mapping and not below.is_scalar and not above.is_scalar:
        below, above = (replace(node, value=named(node)) for node in (below, above))
    if below.is_mapping and above.is_mapping:
        entries = dict(below.entries)
        for name, inner in above.entries.items():
            entries[name] = over(entries.get(name, replace(inner, value=None, tag="")), inner, name)
        return replace(above, value=entries)
    if below.is_list and above.is_list:
        return replace(above, value=_joined(below, above, key))
    return above


def _joined(below: Node, above: Node, key: str) -> tuple[Node, ...]:
    if key == "volumes":  # one mount for each path: the upper one's
        taken = {target_of(part) for part in above.elements}
        return (*(part for part in below.elements if target_of(part) not in taken), *above.elements)
    known = [part.plain() for part in below.elements]
    return (*below.elements, *(part for part in above.elements if part.plain() not in known))
