"""PromQL over the vocabulary: a name or a label that is not declared there cannot be asked for."""

import re
from collections.abc import Collection
from dataclasses import dataclass

from prometheus_client.utils import floatToGoString

from zooserve_observability.foreign import ForeignMetric
from zooserve_observability.vocabulary import Metric

__all__ = [
    "TARGET",
    "Family",
    "Value",
    "among",
    "bucket",
    "per_second",
    "selected",
    "selector",
    "series",
    "summed",
    "upto",
]

Family = Metric | ForeignMetric

TARGET = ("instance", "job")
"""What Prometheus adds to every series that it scrapes."""
_LABEL = re.compile(r"\w+")
_OF_KIND = {"histogram": {"le"}, "summary": {"quantile"}}


@dataclass(frozen=True)
class Value:
    """What can stand on one side of a comparison: a series or a recorded one, and the labels that it has."""

    text: str
    labels: frozenset[str]


def series(family: Family, *where: str) -> Value:
    """A family as it is scraped."""
    return Value(selected(family, where), frozenset((*family.labels, *TARGET)))


def selected(family: Family, where: tuple[str, ...] = (), *, suffix: str = "") -> str:
    """The family's series that match, each condition as `label="value"`."""
    known = {*family.labels, *TARGET} | _OF_KIND.get(family.kind, set())
    return selector(f"{family.series}{suffix}", where, known)


def selector(name: str, where: tuple[str, ...], known: Collection[str]) -> str:
    """A name with its conditions, all of them on labels that it has."""
    for condition in where:
        label = _LABEL.match(condition)
        if label is None or label[0] not in known:
            raise ValueError(f"{name} has no such label: {condition}. It has {', '.join(sorted(known))}.")
    return name + (f"{{{','.join(where)}}}" if where else "")


def among(label: str, *values: str) -> str:
    """The condition that a label is one of these."""
    return f'{label}="{values[0]}"' if len(values) == 1 else f'{label}=~"{"|".join(values)}"'


def upto(limit: float) -> str:
    """The condition for a histogram's bucket up to this bound, spelled as prometheus_client spells it."""
    return f'le="{floatToGoString(limit)}"'  # type: ignore[no-untyped-call]


def per_second(
    family: Family, window: str, where: tuple[str, ...] = (), *, suffix: str = "", over: str = "rate"
) -> str:
    """How much each series of a counter grows in a second; `over="increase"`: in the whole window."""
    return f"{over}({selected(family, where, suffix=suffix)}[{window}])"


def summed(
    family: Family,
    window: str,
    by: tuple[str, ...],
    where: tuple[str, ...] = (),
    *,
    suffix: str = "",
    over: str = "rate",
) -> str:
    """The same, added up over everything but these labels."""
    return f"sum by ({', '.join(by)}) ({per_second(family, window, where, suffix=suffix, over=over)})"


def bucket(
    family: Family, limit: float, window: str, by: tuple[str, ...], where: tuple[str, ...] = (), *, over: str = "rate"
) -> str:
    """Of what a histogram measured, how much stayed within a bound."""
    return summed(family, window, by, (*where, upto(limit)), suffix="_bucket", over=over)
