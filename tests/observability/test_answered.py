"""Which expressions are asked of a Prometheus, and which answers are found wanting."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from zooserve_observability.answered import Asked, Prometheus, Span, asked_by_dashboards, asked_by_rules, faults

DASHBOARD: dict[str, Any] = {
    "title": "zoo",
    "templating": {
        "list": [
            {"name": "datasource", "query": "prometheus"},
            {"name": "model", "query": {"query": 'label_values(info{task="chat"}, model)'}},
        ]
    },
    "panels": [
        {"title": "a row"},
        {"title": "rate", "targets": [{"expr": 'sum(rate(a_total{model=~"$model"}[$__rate_interval]))'}]},
        {"title": "memory", "description": "Used.\n\nrequires: gpu", "targets": [{"expr": "used"}, {"expr": "total"}]},
    ],
}
RULES = """
groups:
  - name: one
    rules:
      - {record: "one:rate5m", expr: "rate(a_total[5m])"}
      - alert: Both
        expr: |-
          one:rate5m > 0.5
          and other{x="y"} <= 1e-3
      - alert: Joined
        expr: a and on (model) b > 2
      - {alert: Gpu, expr: used / total > 0.9, labels: {requires: gpu}}
"""


def test_every_target_and_variable_of_a_dashboard_is_asked_with_everything_chosen(tmp_path: Path) -> None:
    (tmp_path / "zoo.json").write_text(json.dumps(DASHBOARD))
    assert asked_by_dashboards(tmp_path, window="20s") == [
        Asked("zoo, variable model", 'count by (model) (info{task="chat"})', may_be_constant=True),
        Asked("zoo, rate", 'sum(rate(a_total{model=~".*"}[20s]))'),
        Asked("zoo, memory", "used", "gpu"),
        Asked("zoo, memory", "total", "gpu"),
    ]


def test_of_an_alert_each_value_is_asked_without_its_threshold(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(RULES)
    assert asked_by_rules(tmp_path) == [
        Asked("rule one:rate5m", "rate(a_total[5m])"),
        Asked("alert Both", "one:rate5m"),
        Asked("alert Both", 'other{x="y"}'),
        Asked("alert Joined", "a and on (model) b"),
        Asked("alert Gpu", "used / total", "gpu"),
    ]


ANSWERS: dict[str, Any] = {
    "moving": [["1", "2"], ["5", "5"]],
    "resting": [["1", "1"], ["5", "5"]],
    "nothing": [],
    "never": [["NaN", "NaN"], ["+Inf", "NaN"]],
}


@pytest.fixture
def prometheus() -> Iterator[Prometheus]:
    class Api(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            (query,) = parse_qs(urlsplit(self.path).query)["query"]
            if query in ANSWERS:
                series = [{"metric": {}, "values": [[0, each] for each in values]} for values in ANSWERS[query]]
                body = {"status": "success", "data": {"result": series}}
            else:
                body = {"status": "error", "error": "parse error"}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *arguments: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    threading.Thread(target=server.serve_forever).start()
    yield Prometheus(f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("moving", ""),
        ("resting", "never changes: 1, 5"),
        ("nothing", "no data"),
        ("never", "NaN or infinite throughout"),
        ("wrong(", "Prometheus refuses it: parse error"),
    ],
)
def test_an_answer_is_wanting_where_it_is_empty_no_number_or_always_the_same(
    prometheus: Prometheus, expression: str, reason: str
) -> None:
    found = faults(prometheus, [Asked("here", expression)], Span(0, 10))
    assert [fault.reason for fault in found] == ([reason] if reason else [])


def test_what_may_be_constant_needs_data_all_the_same(prometheus: Prometheus) -> None:
    asked = [Asked("here", each, may_be_constant=True) for each in ("resting", "nothing")]
    assert [str(fault) for fault in faults(prometheus, asked, Span(0, 10))] == ["here: no data\n    nothing"]
