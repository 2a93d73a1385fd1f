"""How deeply a value is nested, told without recursing into it."""

from typing import Any

import pytest

from zooserve_router.nesting import is_deeper


def nested(levels: int) -> Any:
    value: Any = "text"
    for level in range(levels):
        value = [value, 1] if level % 2 else {"a": value, "b": 1}
    return value


@pytest.mark.parametrize(
    ("levels", "most", "deeper"), [(0, 1, False), (3, 3, False), (4, 3, True), (100_000, 64, True)]
)
def test_levels_are_lists_and_objects_in_one_another(levels, most, deeper) -> None:
    assert is_deeper(nested(levels), most) is deeper
