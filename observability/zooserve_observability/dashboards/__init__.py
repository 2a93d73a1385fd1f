"""Grafana's dashboards as code: definition -> Grafana's types -> JSON, committed in observability/grafana/dashboards.

`panels` says what a dashboard is made of, `expressions` writes PromQL from the vocabulary, each other module is one
dashboard, and `grafana` alone knows Grafana's types. Nothing that serves imports any of it:

    python -m zooserve_observability.dashboards
"""

__all__: list[str] = []
