"""PromQL, written from the vocabulary: a name or a label that is not declared there cannot be asked for.

Every expression over our own series obeys the dashboard's variables; Triton's obey those of the zoo's dashboard.
"""

import re

from zooserve_observability.foreign import ForeignMetric
from zooserve_observability.vocabulary import Metric

__all__ = [
    "VARIABLES",
    "Family",
    "increase",
    "mean",
    "now",
    "per_second",
    "quantile",
    "rate",
    "ratio",
    "selected",
    "share",
]

Family = Metric | ForeignMetric
VARIABLES = ("model", "version", "class", "instance", "stage", "server")
"""What the expressions may leave to whoever looks: stage is a Triton model, server a Triton server."""

_OVER = "[$__rate_interval]"
_OF_OURS = ("model", "version", "class")
_TARGET = ("instance", "job")
_OF_KIND = {"histogram": {"le"}, "summary": {"quantile"}}
_LABEL = re.compile(r"\w+")
By = tuple[str, ...]


def selected(family: Family, suffix: str = "", by: By = (), where: By = ()) -> str:
    """The family's series that the variables and the matchers leave, if it has these labels."""
    name = family.series + suffix
    asked = {matched.group() for matcher in where if (matched := _LABEL.match(matcher))} | set(by)
    if unknown := asked - {*family.labels, *_TARGET} - _OF_KIND.get(family.kind, set()):
        raise ValueError(f"{name} has no label {', '.join(sorted(unknown))}; it has {', '.join(family.labels)}")
    return f"{name}{{{', '.join((*_chosen(family), *where))}}}"


def rate(family: Family, *by: str, where: By = ()) -> str:
    """How much a counter grows in a second, added up over everything but these labels."""
    return _sum(by, per_second(family, by, where))


def increase(family: Family, *by: str, where: By = ()) -> str:
    """How much a counter grew between two points of the picture."""
    return _sum(by, f"increase({selected(family, '', by, where)}{_OVER})")


def per_second(family: Family, by: By = (), where: By = (), *, suffix: str = "") -> str:
    """How much each series grows in a second."""
    return f"rate({selected(family, suffix, by, where)}{_OVER})"


def now(family: Family, *by: str, where: By = (), how: str = "sum") -> str:
    """A gauge as it is, joined over everything but these labels."""
    return _sum(by, selected(family, "", by, where), how)


def quantile(which: float, family: Family, *by: str, where: By = ()) -> str:
    """The time (or whatever a histogram measures) within which this share of all stayed."""
    buckets = per_second(family, by, where, suffix="_bucket")
    return f"histogram_quantile({which}, {_sum(('le', *by), buckets)})"


def mean(family: Family, *by: str, where: By = ()) -> str:
    """The mean of what a histogram measured."""
    total, count = (_sum(by, per_second(family, by, where, suffix=suffix)) for suffix in ("_sum", "_count"))
    return f"{total} / {count}"


def ratio(part: str, whole: str) -> str:
    """One expression over another of the same labels."""
    return f"{_operand(part)} / {_operand(whole)}"


def share(part: str, whole: str) -> str:
    """Like a ratio, and 0 where there is a whole and no part of it has ever been counted."""
    return f"({part} or 0 * {_operand(whole)}) / {_operand(whole)}"


def _operand(expression: str) -> str:
    return f"({expression})" if re.search(r" [-+*/] ", expression) else expression


def _sum(by: By, expression: str, how: str = "sum") -> str:
    return f"{how} by ({', '.join(by)}) ({expression})" if by else f"{how}({expression})"


def _chosen(family: Family) -> By:
    if isinstance(family, Metric):
        return (*(f'{label}=~"${label}"' for label in _OF_OURS if label in family.labels), 'instance=~"$instance"')
    if family.source == "triton" and "model" in family.labels:
        return ('job="zoo"', 'model=~"$stage"', 'instance=~"$server"')
    return ()
