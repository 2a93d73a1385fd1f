"""The tables of docs/metrics.md, written from the vocabulary and from what is known of others' series.

python -m zooserve_observability.metrics_page            # write them
python -m zooserve_observability.metrics_page --check    # fail where they are others
"""

import argparse
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from zooserve_observability.foreign import FOREIGN, ForeignMetric
from zooserve_observability.vocabulary import METRICS, Metric

__all__ = ["rewritten"]

_PAGE = Path("docs/metrics.md")
_JOBS = {"triton": "`zoo`, `leaf`"}
_OVER = {
    "livesum": "sum",
    "livemax": "greatest",
    "livemin": "least",
    "max": "greatest ever",
    "mostrecent": "last",
}
"""How a gauge is joined over the living replicas, in words."""


def rewritten(page: str) -> str:
    """The page with both tables as they are now."""
    return _between(_between(page, "ours", _ours()), "others", _others())


def _between(page: str, name: str, table: str) -> str:
    begin, end = f"<!-- {name}: generated -->\n", f"<!-- {name}: end -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"the page must have {begin.strip()} and {end} once each")
    return re.sub(rf"(?<={re.escape(begin)}).*?(?={re.escape(end)})", lambda _: table, page, flags=re.DOTALL)


def _ours() -> str:
    rows = (f"| `{each.series}` | {_kind(each)} | {_labels(each.labels)} | {each.help} |" for each in METRICS)
    return _table("| series | kind | labels | |", rows)


def _others() -> str:
    rows = (
        f"| `{each.series}` | {each.kind} | {_job(each)} | {_labels(each.labels)} | {each.requires.replace('_', ' ')} |"
        for each in FOREIGN
    )
    return _table("| series | kind | job | labels | only with |", rows)


def _table(head: str, rows: Iterable[str]) -> str:
    return "\n".join([head, "|---" * (head.count("|") - 1) + "|", *rows, ""])


def _kind(metric: Metric) -> str:
    if metric.kind == "gauge":
        return f"gauge, {_OVER[metric.over_replicas]} over replicas"
    return metric.kind if metric.kind == "counter" else f"histogram, {metric.unit}"


def _labels(labels: tuple[str, ...]) -> str:
    return ", ".join(labels)


def _job(metric: ForeignMetric) -> str:
    return _JOBS.get(metric.source, f"`{metric.source}`")


def main() -> int:
    """The exit code: 1 where a table is not as generated."""
    parser = argparse.ArgumentParser(prog="zooserve_observability.metrics_page", description=__doc__)
    parser.add_argument("page", nargs="?", type=Path, default=_PAGE)
    parser.add_argument("--check", action="store_true", help="write nothing")
    given = parser.parse_args()
    text = given.page.read_text(encoding="utf-8")
    wanted = rewritten(text)
    if given.check:
        if wanted != text:
            sys.stderr.write(f"{given.page} is not as generated: python -m zooserve_observability.metrics_page\n")
        return int(wanted != text)
    given.page.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
