"""What is said of others' series holds on their pages: recorded live from this platform, or after their projects."""

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from zooserve_observability.foreign import FOREIGN, ForeignMetric

HERE = Path(__file__).parent / "expositions"
PAGES = {file.stem: file.read_text() for file in HERE.glob("*.txt")}


def page_of(metric: ForeignMetric) -> str:
    """The recorded page on which a series is to be found."""
    if metric.requires == "gpu":
        return (HERE / "h200" / "1.txt").read_text()
    if metric.requires:
        return PAGES[metric.requires]
    return PAGES["zoo" if metric.source == "triton" else metric.source]


@pytest.mark.parametrize("metric", FOREIGN, ids=lambda metric: metric.series)
def test_a_foreign_series_is_on_the_page_that_it_is_said_to_be_on(metric: ForeignMetric) -> None:
    text = page_of(metric)
    kinds = dict(re.findall(r"^# TYPE (\S+) (\w+)$", text, re.MULTILINE))
    assert kinds.get(metric.series) == metric.kind
    sample = rf"^{re.escape(metric.series)}(?:_bucket)?(?:{{(.*)}})? \S+$"
    labels = {frozenset(re.findall(r'(\w+)="', found)) - {"le"} for found in re.findall(sample, text, re.MULTILINE)}
    assert any(set(metric.labels) <= each for each in labels), f"labels are {sorted(map(sorted, labels))}"


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_recorded_page_says_where_it_is_from_and_can_be_read(name: str) -> None:
    assert PAGES[name].startswith("# ")
    assert len(list(text_string_to_metric_families(PAGES[name]))) > 3
