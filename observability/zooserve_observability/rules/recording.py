"""The shapes that recordings take. Nothing is divided by zero: where there is no whole, there is no share."""

from zooserve_observability.rules.promql import Family, summed
from zooserve_observability.rules.rule import Recording

__all__ = ["beyond_habit", "filled", "imbalance", "increase", "rate"]

By = tuple[str, ...]


def rate(record: str, family: Family, window: str, by: By, where: By = ()) -> Recording:
    """How much a counter grows in a second."""
    return Recording(record, summed(family, window, by, where), by)


def increase(record: str, family: Family, window: str, by: By) -> Recording:
    """How much a counter grew in the window."""
    return Recording(record, summed(family, window, by, over="increase"), by)


def beyond_habit(record: str, family: Family, by: By) -> Recording:
    """What a counter grows in a second beyond three times its habit of six hours: a steady background is no rise."""
    return Recording(record, f"{summed(family, '5m', by)}\n- 3 *\n{summed(family, '6h', by)}", by)


def imbalance(record: str, loads: str, by: By, member: str) -> Recording:
    """How many times its fair share each of several carries: 1 where all carry the same."""
    over = ", ".join(by)
    mean = f"(avg by ({over}) ({loads}) > 0)"
    return Recording(record, f"{loads}\n/ on ({over}) group_left ()\n{mean}", (*by, member))


def filled(record: str, used: str, room: str, by: By, *tags: tuple[str, str]) -> Recording:
    """How much of a room is used; where several tell of the same room, by the fullest."""
    over = ", ".join(by)
    return Recording(record, f"max by ({over}) ({used})\n/\n(max by ({over}) ({room}) > 0)", by, tags)
