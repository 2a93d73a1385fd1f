"""A dashboard in Grafana's own types, and as the text that is committed. Nothing else here knows Grafana."""

import json
import re
from collections.abc import Iterator, Sequence

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.models import dashboard as grafana

from zooserve_observability.dashboards.expressions import VARIABLES
from zooserve_observability.dashboards.panels import Dashboard, Look, Panel, Row
from zooserve_observability.dashboards.traces import explore_url, trace_query
from zooserve_observability.foreign import EXECUTIONS
from zooserve_observability.vocabulary import MODEL_INFO, REQUESTS

__all__ = ["TAG", "document", "text"]

TAG = "zooserve"
_WIDTH = 24
_HEIGHTS: dict[Look, int] = {"lines": 8, "stacked": 8, "states": 8, "number": 8, "table": 8}
_TYPES: dict[Look, str] = {
    "lines": "timeseries", "stacked": "timeseries", "states": "state-timeline", "number": "stat", "table": "table",
}  # fmt: skip
_LEGEND_LABEL = re.compile(r"{{(\w+)}}")


def text(dashboard: Dashboard) -> str:
    """The file's content."""
    return json.dumps(document(dashboard), cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def document(dashboard: Dashboard) -> grafana.Dashboard:
    """The dashboard as Grafana knows it."""
    return grafana.Dashboard(
        uid=dashboard.uid,
        title=dashboard.title,
        description=dashboard.summary,
        tags=[TAG],
        editable=False,
        graph_tooltip=grafana.DashboardCursorSync.CROSSHAIR,
        refresh="30s",
        time=grafana.DashboardDashboardTime("now-1h", "now"),
        templating=grafana.DashboardDashboardTemplating(list(_variables(dashboard))),
        annotations=grafana.AnnotationContainer([]),
        links=[_to_the_others()],
        panels=list(_placed(dashboard.rows)),
    )


def _to_the_others() -> grafana.DashboardLink:
    return grafana.DashboardLink(
        title="Other dashboards", type_val=grafana.DashboardLinkType.DASHBOARDS, tags=[TAG], icon="external link",
        as_dropdown=True, include_vars=True, keep_time=True,
    )  # fmt: skip


def _variables(dashboard: Dashboard) -> Iterator[grafana.VariableModel]:
    """The source of the data, and what the expressions leave open."""
    yield grafana.VariableModel(
        type_val=grafana.VariableType.DATASOURCE, name="datasource", label="Data source", query="prometheus",
        current=grafana.VariableOption(selected=True, text="Prometheus", value="prometheus"),
    )  # fmt: skip
    written = " ".join(query.expression for panel in dashboard.panels for query in panel.queries)
    info, run = MODEL_INFO.series, EXECUTIONS.series
    queries = {
        "model": f"label_values({info}{{{dashboard.models}}}, model)",
        "version": f'label_values({info}{{model=~"$model"}}, version)',
        "class": f"label_values({REQUESTS.series}, class)",
        "instance": f"label_values({info}, instance)",
        "stage": f'label_values({run}{{job="zoo"}}, model)',
        "server": f'label_values({run}{{job="zoo"}}, instance)',
    }
    for name in VARIABLES:
        if f'"${name}"' in written:
            yield _variable(name, queries[name], all_value=None if name == "model" and dashboard.models else ".*")


def _variable(name: str, query: str, all_value: str | None) -> grafana.VariableModel:
    return grafana.VariableModel(
        type_val=grafana.VariableType.QUERY, name=name, label=name.capitalize(), datasource=_data(),
        query={"qryType": 1, "query": query, "refId": f"variable-{name}"},
        current=grafana.VariableOption(selected=True, text=["All"], value=["$__all"]),
        multi=True, include_all=True, all_value=all_value, sort=grafana.VariableSort.ALPHABETICAL_ASC,
        refresh=grafana.VariableRefresh.ON_TIME_RANGE_CHANGED,
    )  # fmt: skip


def _data() -> grafana.DataSourceRef:
    return grafana.DataSourceRef("prometheus", "${datasource}")


def _placed(rows: Sequence[Row]) -> Iterator[grafana.Panel | grafana.RowPanel]:
    """Every panel at its place: rows below each other, panels from the left, a new line where one is full."""
    y, number = 0, 0
    for row in rows:
        number += 1
        place = grafana.GridPos(h=1, w=_WIDTH, x=0, y=y)
        yield grafana.RowPanel(title=row.title, id_val=number, grid_pos=place, panels=[])
        x, y, line_height = 0, y + 1, 0
        for panel in row.panels:
            if x + panel.width > _WIDTH:
                x, y, line_height = 0, y + line_height, 0
            number += 1
            yield _panel(panel, number, grafana.GridPos(h=_HEIGHTS[panel.look], w=panel.width, x=x, y=y))
            x, line_height = x + panel.width, max(line_height, _HEIGHTS[panel.look])
        y += line_height


def _panel(panel: Panel, number: int, place: grafana.GridPos) -> grafana.Panel:
    return grafana.Panel(
        type_val=_TYPES[panel.look],
        id_val=number,
        title=panel.title,
        description=panel.description,
        datasource=_data(),
        grid_pos=place,
        targets=list(_targets(panel)),
        transformations=_tidied() if panel.look == "table" else None,
        options=_options(panel),
        field_config=grafana.FieldConfigSource(defaults=_field(panel), overrides=[]),
    )


def _targets(panel: Panel) -> Iterator[prometheus.Dataquery]:
    tabular, latest = panel.look == "table", panel.look in ("table", "number")
    for number, query in enumerate(panel.queries):
        yield prometheus.Dataquery(
            expr=query.expression,
            legend_format=query.legend,
            ref_id=chr(ord("A") + number),
            instant=latest,
            range_val=not latest,
            format_val=prometheus.PromQueryFormat.TABLE if tabular else prometheus.PromQueryFormat.TIME_SERIES,
            editor_mode=prometheus.QueryEditorMode.CODE,
            exemplar=panel.exemplars or None,
            datasource=_data(),
        )


def _tidied() -> list[grafana.DataTransformerConfig]:
    """A table is as of now, and shows labels beside a value."""
    columns = {"excludeByName": {"Time": True}, "renameByName": {"Value": "now"}}
    return [grafana.DataTransformerConfig(id_val="organize", options=columns)]


def _options(panel: Panel) -> object:
    tooltip = common.VizTooltipOptions(mode=common.TooltipDisplayMode.MULTI, sort=common.SortOrder.DESCENDING)
    legend = common.VizLegendOptions(
        display_mode=common.LegendDisplayMode.TABLE, placement=common.LegendPlacement.BOTTOM, show_legend=True,
        calcs=["lastNotNull", "max"], sort_by="Max", sort_desc=True,
    )  # fmt: skip
    match panel.look:
        case "table":
            return table.Options()
        case "number":
            latest = common.ReduceDataOptions(calcs=["lastNotNull"])
            return stat.Options(
                reduce_options=latest,
                graph_mode=common.BigValueGraphMode.AREA,
                color_mode=common.BigValueColorMode.VALUE,
            )
        case "states":
            return statetimeline.Options(
                show_value=common.VisibilityMode.NEVER, legend=common.VizLegendOptions(show_legend=True),
                tooltip=tooltip,
            )  # fmt: skip
        case "lines" | "stacked":
            return timeseries.Options(legend=legend, tooltip=tooltip)


def _field(panel: Panel) -> grafana.FieldConfig:
    return grafana.FieldConfig(
        unit=panel.unit,
        min_val=panel.least,
        max_val=panel.most,
        mappings=_mappings(panel) or None,
        thresholds=_thresholds(panel),
        color=_colours(panel),
        links=_links(panel) or None,
        custom=_drawn(panel),
    )


def _mappings(panel: Panel) -> list[grafana.ValueMapping]:
    results = {
        str(state.value): grafana.ValueMappingResult(text=state.text, color=state.colour, index=index)
        for index, state in enumerate(panel.states)
    }
    return [grafana.ValueMap(results)] if results else []


def _thresholds(panel: Panel) -> grafana.ThresholdsConfig:
    steps = [grafana.Threshold(None, "green")]
    if panel.worry_at is not None:
        steps.append(grafana.Threshold(panel.worry_at, "red"))
    return grafana.ThresholdsConfig(grafana.ThresholdsMode.ABSOLUTE, steps)


def _colours(panel: Panel) -> grafana.FieldColor:
    by_value = panel.look in ("states", "number")
    return grafana.FieldColor(
        grafana.FieldColorModeId.THRESHOLDS if by_value else grafana.FieldColorModeId.PALETTE_CLASSIC_BY_NAME
    )


def _drawn(panel: Panel) -> object | None:
    if panel.look not in ("lines", "stacked"):
        return None
    stacked = panel.look == "stacked"
    line = common.GraphThresholdsStyleMode.DASHED if panel.worry_at is not None else common.GraphThresholdsStyleMode.OFF
    return timeseries.FieldConfig(
        line_width=1,
        fill_opacity=40 if stacked else 8,
        show_points=common.VisibilityMode.NEVER,
        stacking=common.StackingConfig(
            mode=common.StackingMode.NORMAL if stacked else common.StackingMode.NONE, group="A"
        ),
        thresholds_style=common.GraphThresholdsStyleConfig(mode=line),
    )


def _links(panel: Panel) -> list[grafana.DashboardLink]:
    if not panel.traces:
        return []
    # A link stands at every series of the panel: it may only use labels that all of them have.
    labels = set.intersection(*(set(_LEGEND_LABEL.findall(query.legend)) for query in panel.queries))
    url = explore_url(trace_query(panel.traces, tuple(sorted(labels))))
    return [grafana.DashboardLink(title="Traces of these requests", url=url, target_blank=True)]
