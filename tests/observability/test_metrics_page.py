"""docs/metrics.md lists every series, as it is declared now."""

from pathlib import Path

import pytest

from zooserve_observability.metrics_page import rewritten
from zooserve_observability.vocabulary import METRICS

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_tables_are_as_generated() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert rewritten(text) == text, "run python -m zooserve_observability.metrics_page"


def test_every_series_of_ours_is_listed_once() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [metric.series for metric in METRICS if text.count(f"\n| `{metric.series}` |") != 1] == []


def test_a_page_without_a_place_for_the_tables_is_refused() -> None:
    with pytest.raises(ValueError, match="ours: generated"):
        rewritten("# Metrics\n")
