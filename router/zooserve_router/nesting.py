"""How deeply a JSON value is nested: what is written again, or walked through, has a bound."""

from typing import Any

__all__ = ["is_deeper"]


def is_deeper(value: Any, levels: int) -> bool:
    """Whether it has more levels than that; level by level, since what is too deep cannot be recursed into."""
    level = [value]
    for _ in range(levels):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return False
    return True


def _children(value: Any) -> list[Any]:
    nested = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [child for child in nested if isinstance(child, (dict, list))]
