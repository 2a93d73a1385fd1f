"""What the references of a JSON schema lead to, within it."""

from typing import Any
from urllib.parse import unquote

__all__ = ["referred"]


def referred(root: Any, reference: str) -> Any:
    """What `#` or `#/$defs/name` leads to; None where that is nothing."""
    target = root
    for part in reference.split("/")[1:]:
        target = _member(target, unquote(part).replace("~1", "/").replace("~0", "~"))
    return target


def _member(value: Any, name: str) -> Any:
    if isinstance(value, list):
        return value[int(name)] if name in map(str, range(len(value))) else None
    return value.get(name) if isinstance(value, dict) else None
