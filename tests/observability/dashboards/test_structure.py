"""What Grafana would not complain about, and nobody would see until the dashboard is needed."""

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any, get_args
from urllib.parse import parse_qs, urlsplit

import pytest
from grafana_foundation_sdk.models import units
from ruamel.yaml import YAML

from zooserve_observability import foreign, vocabulary
from zooserve_observability.dashboards.committed import Drawn, read
from zooserve_observability.dashboards.traces import TEMPO
from zooserve_observability.foreign import Requires
from zooserve_observability.rules.groups import ALERTS

GRAFANA = Path(__file__).parents[3] / "observability/grafana"
DASHBOARDS = {file.stem: json.loads(file.read_text()) for file in sorted((GRAFANA / "dashboards").glob("*.json"))}
PANELS = [(name, panel) for name, dashboard in DASHBOARDS.items() for panel in dashboard["panels"]]
DRAWN = [(name, panel) for name, panel in PANELS if panel["type"] != "row"]
UNITS = {value for name, value in vars(units).items() if isinstance(value, str) and not name.startswith("_")}
BUILT_IN = {"__rate_interval", "__from", "__to"}
NOT_SHOWN = {"DRAFT_TOKENS", "DRAFT_ACCEPTANCE"}
"""Of speculative decoding, which no engine here does: a panel of it could be held against nothing."""
NAMED = re.compile(r"\$(?:{([A-Za-z_][\w.]*)}|([A-Za-z_]\w*))")
LEGEND_LABEL = re.compile(r"{{(\w+)}}")

each_dashboard = pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=DASHBOARDS)
each_panel = pytest.mark.parametrize(
    ("name", "panel"), DRAWN, ids=[f"{name}: {panel['title']}" for name, panel in DRAWN]
)


def provisioned(kind: str) -> Any:
    return YAML(typ="safe").load(GRAFANA / "provisioning" / kind / "zooserve.yaml")


def metrics_in(expression: str) -> set[str]:
    names = {family.series: name for name, family in vars(vocabulary).items() if isinstance(family, vocabulary.Metric)}
    names |= {
        family.series: name for name, family in vars(foreign).items() if isinstance(family, foreign.ForeignMetric)
    }
    found = re.findall(r"[a-z][a-z0-9_:]*(?=[{\[])", expression)
    return {names[re.sub(r"_(bucket|sum|count)$", "", name) if name not in names else name] for name in found
            if not name.startswith("zooserve:")}  # fmt: skip


def test_there_are_six_each_with_a_name_and_an_address_of_its_own() -> None:
    assert set(DASHBOARDS) == {"overview", "chat", "zoo", "releases", "capacity", "slo"}
    assert {name: dashboard["uid"] for name, dashboard in DASHBOARDS.items()} == {
        name: f"zooserve-{name}" for name in DASHBOARDS
    }
    assert len({dashboard["title"] for dashboard in DASHBOARDS.values()}) == 6


@each_dashboard
def test_panels_have_ids_and_titles_of_their_own(dashboard: dict[str, Any]) -> None:
    ids = [panel["id"] for panel in dashboard["panels"]]
    titles = [panel["title"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    assert len(set(titles)) == len(titles)
    assert all(panel_id > 0 for panel_id in ids)


@each_dashboard
def test_panels_lie_within_the_grid_and_on_no_other(dashboard: dict[str, Any]) -> None:
    cells: dict[tuple[int, int], str] = {}
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= 24
        assert place["h"] > 0
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in cells, f"{panel['title']} lies on {cells[x, y]}"
                cells[x, y] = panel["title"]


@each_dashboard
def test_every_row_is_full(dashboard: dict[str, Any]) -> None:
    """A gap in a row of panels is a forgotten width."""
    widths: dict[int, int] = {}
    for panel in dashboard["panels"]:
        widths[panel["gridPos"]["y"]] = widths.get(panel["gridPos"]["y"], 0) + panel["gridPos"]["w"]
    assert set(widths.values()) == {24}


@each_dashboard
def test_every_variable_that_is_used_is_defined_and_the_other_way_round(dashboard: dict[str, Any]) -> None:
    defined = {variable["name"] for variable in dashboard["templating"]["list"]}
    used = {
        found[1] or found[2]
        for panel in dashboard["panels"]
        for text in (
            *(target["expr"] for target in panel.get("targets", [])),
            panel.get("datasource", {}).get("uid", ""),
        )
        for found in NAMED.finditer(text)
    }
    in_queries = {
        found[1] or found[2]
        for variable in dashboard["templating"]["list"]
        for found in NAMED.finditer(json.dumps([variable["query"], variable.get("datasource")]))
    }
    assert used - BUILT_IN <= defined
    assert defined <= (used | in_queries)


@each_dashboard
def test_every_choice_begins_with_everything(dashboard: dict[str, Any]) -> None:
    first, *choices = dashboard["templating"]["list"]
    assert (first["name"], first["type"], first["query"]) == ("datasource", "datasource", "prometheus")
    for variable in choices:
        assert (variable["multi"], variable["includeAll"], variable["current"]["value"]) == (True, True, ["$__all"])
        assert variable["query"]["query"].startswith("label_values(")


@each_dashboard
def test_the_others_are_one_click_away(dashboard: dict[str, Any]) -> None:
    (link,) = dashboard["links"]
    assert (link["type"], link["tags"], link["keepTime"], link["includeVars"]) == (
        "dashboards",
        ["zooserve"],
        True,
        True,
    )
    assert all("zooserve" in other["tags"] for other in DASHBOARDS.values())


@each_panel
def test_a_panel_asks_something_and_says_what_it_shows(name: str, panel: dict[str, Any]) -> None:
    assert panel["targets"]
    assert [target["refId"] for target in panel["targets"]] == list("ABCDEFGH")[: len(panel["targets"])]
    assert all(target["expr"].strip() for target in panel["targets"])
    assert panel["type"] == "table" or all(target["legendFormat"] for target in panel["targets"])
    words = panel["description"].split("\n\nrequires:")[0]
    assert words.endswith(".")
    assert len(words) > 40


@each_panel
def test_a_panels_unit_is_one_that_grafana_knows(name: str, panel: dict[str, Any]) -> None:
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS


@each_panel
def test_a_panels_data_come_from_the_chosen_source(name: str, panel: dict[str, Any]) -> None:
    sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
    assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources)


@each_panel
def test_a_legend_names_only_labels_that_its_expression_keeps(name: str, panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        kept = {
            label.strip()
            for group in re.findall(r"\bby \(([^)]*)\)", target["expr"])
            for label in group.split(",")
        }  # fmt: skip
        if "zooserve:" in target["expr"]:
            kept |= {"model", "class"}
        assert set(LEGEND_LABEL.findall(target["legendFormat"])) <= kept


@each_panel
def test_no_expression_hides_that_there_is_nothing(name: str, panel: dict[str, Any]) -> None:
    assert not [target for target in panel["targets"] if "vector(" in target["expr"] or "absent(" in target["expr"]]


@each_panel
def test_rates_are_over_grafanas_interval(name: str, panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        windows = re.findall(r"\b(?:rate|increase)\([^[]*\[([^]]*)\]", target["expr"])
        assert set(windows) <= {"$__rate_interval"}


@each_panel
def test_a_panel_requires_what_its_series_require(name: str, panel: dict[str, Any]) -> None:
    (drawn,) = [
        drawn for drawn in drawn_panels() if (drawn.dashboard, drawn.title) == (f"zooserve-{name}", panel["title"])
    ]
    required = {
        getattr(vars(foreign).get(metric), "requires", "")
        for target in panel["targets"]
        for metric in metrics_in(target["expr"])
    }
    assert required - {""} == ({drawn.requires} - {""})
    assert drawn.requires in get_args(Requires)


def drawn_panels() -> tuple[Drawn, ...]:
    return read(GRAFANA / "dashboards")


def test_single_requests_are_asked_for_where_the_collector_has_them_and_lead_to_tempo() -> None:
    asked = {panel["title"] for _, panel in DRAWN for target in panel["targets"] if target.get("exemplar")}
    (measured,) = [panel for _, panel in DRAWN if panel["title"] in asked]
    assert foreign.SPAN_DURATION.series in measured["targets"][0]["expr"]
    assert all(target["exemplar"] and target["range"] for target in measured["targets"])  # an instant has no points
    (source,) = [each for each in provisioned("datasources")["datasources"] if each["uid"] == "prometheus"]
    assert [each["datasourceUid"] for each in source["jsonData"]["exemplarTraceIdDestinations"]] == [TEMPO]


def test_every_metric_of_ours_is_on_some_dashboard() -> None:
    shown = {metric for _, panel in DRAWN for target in panel["targets"] for metric in metrics_in(target["expr"])}
    ours = {name for name, family in vars(vocabulary).items() if isinstance(family, vocabulary.Metric)}
    assert ours - shown == NOT_SHOWN


def test_no_two_panels_of_a_dashboard_ask_the_same() -> None:
    for first, second in combinations(drawn_panels(), 2):
        if first.dashboard == second.dashboard:
            assert first.targets != second.targets, (first.title, second.title)


def test_links_open_the_traces_of_what_the_series_counts() -> None:
    linked = [(name, panel) for name, panel in DRAWN if "links" in panel["fieldConfig"]["defaults"]]
    assert {name for name, _ in linked} == {"overview", "chat", "zoo", "releases", "slo"}
    for _, panel in linked:
        (link,) = panel["fieldConfig"]["defaults"]["links"]
        parts = urlsplit(link["url"])
        (pane,) = json.loads(parse_qs(parts.query)["panes"][0]).values()
        assert (parts.scheme, parts.netloc, parts.path) == ("", "", "/explore")
        assert pane["datasource"] == pane["queries"][0]["datasource"]["uid"] == TEMPO
        assert pane["range"] == {"from": "${__from}", "to": "${__to}"}
        labels = set(re.findall(r"\${__field\.labels\.(\w+)}", pane["queries"][0]["query"]))
        for target in panel["targets"]:
            assert labels <= set(LEGEND_LABEL.findall(target["legendFormat"]))


def test_the_provisioned_sources_are_those_that_the_dashboards_name() -> None:
    sources = {source["uid"]: source["type"] for source in provisioned("datasources")["datasources"]}
    assert sources == {"prometheus": "prometheus", TEMPO: "tempo"}
    for dashboard in DASHBOARDS.values():
        assert dashboard["templating"]["list"][0]["current"]["value"] in sources
    (provider,) = provisioned("dashboards")["providers"]
    assert (provider["type"], provider["allowUiUpdates"]) == ("file", False)


def test_a_stack_of_stages_holds_every_single_stage_and_no_ensemble_of_them() -> None:
    """Triton adds the times of its steps to an ensemble, and a long text's stage calls others."""
    repository = Path(__file__).parents[3] / "model_repository/zoo"
    configurations = {file.parent.name: file.read_text() for file in repository.glob("*/config.pbtxt")}
    several = {name for name, text in configurations.items() if "ensemble_scheduling" in text or name.endswith("_long")}
    panels = [panel for _, panel in DRAWN if panel["fieldConfig"]["defaults"].get("custom", {}).get("stacking")]
    asked = " ".join(target["expr"] for panel in panels for target in panel["targets"] if "/ 1e6" in target["expr"])
    (stages,) = set(re.findall(r'model=~"(\.\+_[^"]+)"', asked))
    assert {name for name in configurations if re.fullmatch(stages, name)} == set(configurations) - several


def test_every_alert_leads_to_a_dashboard_that_is_there() -> None:
    addresses = {dict(alert.annotations)["dashboard"] for alert in ALERTS}
    assert addresses
    assert addresses <= {f"/d/{dashboard['uid']}" for dashboard in DASHBOARDS.values()}


def test_the_page_lists_every_panel_that_requires_something() -> None:
    page = (GRAFANA.parents[1] / "docs/dashboards.md").read_text()
    listed = {
        (required, title)
        for required, titles in re.findall(r"^\| `(\w+)` \| (.+) \|$", page, re.MULTILINE)
        for title in re.findall("“([^”]+)”", titles)
    }
    assert listed == {(drawn.requires, drawn.title) for drawn in drawn_panels() if drawn.requires}
