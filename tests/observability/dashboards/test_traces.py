"""Which traces a series leads to."""

import inspect
import json
import re
from urllib.parse import parse_qs, urlsplit

from zooserve_observability.dashboards.traces import explore_url, trace_query
from zooserve_router import middleware


def test_a_series_leads_to_the_requests_that_it_counts() -> None:
    assert trace_query("failed", ("model", "outcome", "reason")) == (
        '{ resource.service.name = "zooserve-router" && name = "zooserve.request" && '
        'span.zooserve.model = "${__field.labels.model}" && '
        'span.zooserve.outcome = "${__field.labels.outcome}" && status = error }'
    )
    assert trace_query("slow", ()) == (
        '{ resource.service.name = "zooserve-router" && name = "zooserve.request" && duration > 1s }'
    )


def test_a_release_leads_to_the_requests_that_it_ran() -> None:
    assert trace_query("all", ("model", "release", "role", "version")) == (
        '{ resource.service.name = "zooserve-router" && name = "zooserve.request" && '
        'span.zooserve.model = "${__field.labels.release}" && '
        'span.zooserve.model_version = "${__field.labels.version}" }'
    )


def test_the_attributes_are_those_that_the_router_sets() -> None:
    described = inspect.getsource(middleware)
    named = re.findall(r"span\.([a-z_.]+) =", trace_query("all", ("model", "version", "class", "outcome")))
    assert len(named) == 4
    assert [name for name in named if f'"{name}"' not in described] == []


def test_a_stage_leads_to_what_took_long_in_it() -> None:
    assert trace_query("stage", ("model", "version")) == (
        '{ span.triton.model_name = "${__field.labels.model}" && duration > 100ms }'
    )


def test_the_address_carries_the_query_whole_and_leaves_grafana_its_variables() -> None:
    query = trace_query("all", ("model",))
    url = explore_url(query)
    assert "${__field.labels.model}" in url
    assert "${__from}" in url
    assert " " not in url
    assert '"' not in url
    (pane,) = json.loads(parse_qs(urlsplit(url).query)["panes"][0]).values()
    assert pane["queries"][0]["query"] == query
