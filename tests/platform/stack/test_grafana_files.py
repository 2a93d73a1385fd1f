"""The committed provisioning files and dashboards are without fault, and each fault that is put into them is found."""

from pathlib import Path

import pytest

from zooserve_cli.stack.grafana import dashboard_findings, datasource_uids, provisioning_findings

ROOT = Path(__file__).parents[3]
SOURCES = Path("observability/grafana/provisioning/datasources/zooserve.yaml")
PROVIDERS = Path("observability/grafana/provisioning/dashboards/zooserve.yaml")
DASHBOARDS = sorted((ROOT / "observability" / "grafana" / "dashboards").glob("*.json"))
TEXT = (ROOT / SOURCES).read_text()
PROVIDER = (ROOT / PROVIDERS).read_text()
UIDS = datasource_uids(TEXT, SOURCES)


def found(text: str) -> set[tuple[str, int]]:
    """Rules and lines."""
    return {(finding.rule, finding.place.line) for finding in provisioning_findings(text, SOURCES)}


def line_of(text: str, part: str) -> int:
    """Where a part first stands."""
    return text[: text.index(part)].count("\n") + 1


@pytest.mark.parametrize("file", [SOURCES, PROVIDERS], ids=str)
def test_the_committed_files_are_without_fault(file: Path) -> None:
    assert not [str(finding) for finding in provisioning_findings((ROOT / file).read_text(), file)]


FAULTS = {
    "an unknown key": ("isDefault:", "default:", "config-unknown-key", "default:"),
    "an unknown setting": ("timeInterval:", "interval:", "config-unknown-key", "interval:"),
    "a time without its unit": ("timeInterval: 15s", "timeInterval: 15", "config-value", "timeInterval"),
    "an unknown type": ("type: tempo", "type: temp", "grafana-datasource", "type: temp"),
    "one uid for two": ("uid: tempo\n    type", "uid: prometheus\n    type", "grafana-datasource", "- name: Tempo"),
    "exemplars that lead nowhere": (
        "datasourceUid: tempo",
        "datasourceUid: jaeger",
        "grafana-datasource",
        "datasourceUid: jaeger",
    ),
    "metrics that are nowhere": (
        "datasourceUid: prometheus",
        "datasourceUid: mimir",
        "grafana-datasource",
        "datasourceUid: mimir",
    ),
    "two defaults": ("type: tempo", "type: tempo\n    isDefault: true", "grafana-datasource", "datasources:"),
    "a dollar too few": ("$$__tags", "$__tags", "grafana-interpolation", "$__tags"),
    "another form": ("apiVersion: 1", "apiVersion: 0", "grafana-unreadable", "apiVersion"),
}


@pytest.mark.parametrize(("old", "new", "rule", "where"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_found_where_it_stands(old: str, new: str, rule: str, where: str) -> None:
    assert old in TEXT
    faulty = TEXT.replace(old, new, 1)
    assert (rule, line_of(faulty, where)) in found(faulty)


def test_a_providers_fault_is_found() -> None:
    faulty = PROVIDER.replace("allowUiUpdates", "allowUIUpdates")
    assert found(faulty) == {("config-unknown-key", line_of(faulty, "allowUIUpdates"))}


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_dashboards_name_data_sources_that_are_provisioned(file: Path) -> None:
    assert not [str(finding) for finding in dashboard_findings(file.read_text(), file, UIDS)]


def test_a_dashboard_that_names_an_absent_data_source_is_found() -> None:
    (overview,) = (file for file in DASHBOARDS if file.stem == "overview")
    text = overview.read_text().replace('"uid": "${datasource}"', '"uid": "mimir"', 1)
    (finding,) = dashboard_findings(text, overview, UIDS)
    assert (finding.rule, finding.place.line) == ("grafana-datasource", line_of(text, '"mimir"'))


def test_a_link_to_an_absent_data_source_is_found() -> None:
    (overview,) = (file for file in DASHBOARDS if file.stem == "overview")
    (finding,) = dashboard_findings(overview.read_text(), overview, UIDS - {"tempo"})
    assert "tempo" in finding.message


@pytest.mark.parametrize("text", ["", "[]", "a: [", "apiVersion: 1\ndatasources: 3"])
def test_what_is_no_provisioning_file_is_told_and_raises_nothing(text: str) -> None:
    assert found(text)


@pytest.mark.parametrize("text", ["", "{", "[1, null]", '{"datasource": 3, "url": "/explore?panes={"}'])
def test_what_is_no_dashboard_raises_nothing(text: str) -> None:
    assert all(finding.rule == "grafana-unreadable" for finding in dashboard_findings(text, Path("x.json"), UIDS))
