"""Links from a series to its traces: Grafana's Explore with a TraceQL query that names what the series is of.

Exemplars would lead to the one trace behind a point, but prometheus_client writes none in multiprocess mode.
"""

import json
from urllib.parse import quote

from zooserve_observability.dashboards.panels import Traces

__all__ = ["TEMPO", "explore_url", "trace_query"]

TEMPO = "tempo"
"""The datasource's uid, as it is provisioned."""
_ATTRIBUTES = {
    "model": "zooserve.model",
    "release": "zooserve.model",
    "version": "zooserve.model_version",
    "class": "zooserve.slo_class",
    "outcome": "zooserve.outcome",
}
"""Which attribute of the request's span holds what is a label of its metrics."""
_LONG_IN_STAGE = '{ span.triton.model_name = "${__field.labels.model}" && duration > 100ms }'
_ENDED: dict[Traces, str] = {"": "", "all": "", "failed": "status = error", "slow": "duration > 1s"}


def trace_query(which: Traces, labels: tuple[str, ...]) -> str:
    """TraceQL for the requests that a series with these labels counts."""
    if which == "stage":
        return _LONG_IN_STAGE
    # Of a model with releases, the span names the one that ran.
    told = [label for label in labels if label in _ATTRIBUTES and not (label == "model" and "release" in labels)]
    named = (f'span.{_ATTRIBUTES[label]} = "${{__field.labels.{label}}}"' for label in told)
    conditions = ('resource.service.name = "zooserve-router"', 'name = "zooserve.request"', *named, _ENDED[which])
    return "{ " + " && ".join(filter(None, conditions)) + " }"


def explore_url(query: str) -> str:
    """Explore, opened on this query and the dashboard's time range."""
    pane = {
        "datasource": TEMPO,
        "queries": [{
            "refId": "A", "datasource": {"type": "tempo", "uid": TEMPO},
            "queryType": "traceql", "query": query, "limit": 20,
        }],
        "range": {"from": "${__from}", "to": "${__to}"},
    }  # fmt: skip
    # Grafana fills in ${...} before it opens the address, so that these have to stay legible.
    return "/explore?schemaVersion=1&orgId=1&panes=" + quote(json.dumps({"traces": pane}), safe="${}:_.")
