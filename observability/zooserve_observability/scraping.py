"""The Prometheus configuration of one embedded platform: what is scraped, where, under which job.

The jobs are called the same in observability/prometheus/prometheus.yml (compose) and kubernetes.yml: dashboards and
rules ask for them.
"""

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

__all__ = ["BESIDE", "JOBS", "OBSERVERS", "RAY_FAMILIES", "rules_folder", "scrape_file"]

JOBS = ("router", "zoo", "leaf", "haproxy", "ray")
"""What an embedded platform always has; `qdrant` and `vllm` are scraped where somebody runs them."""

OBSERVERS = ("collector", "spanmetrics", "tempo", "grafana", "prometheus")
"""What docker-compose.yml runs to watch the others: without one of them requests go on."""

BESIDE = ("vllm", "qdrant", *OBSERVERS)
"""Jobs of docker-compose.yml that no embedded platform has."""

RAY_FAMILIES = (
    "ray_node_(cpu|mem)_.+",
    "ray_component_(cpu_percentage|rss_bytes)",
    "ray_serve_(deployment|replica|autoscaling)_[a-z_]+",
    "ray_serve_num_[a-z_]+",
    "ray_actors",
    "ray_resources",
)
"""What is kept of Ray's page: all of it is 1,800 series in 690 kB (measured, two replicas), hardly any of use here."""

_EVERY = {"ray": "15s"}
"""Scrape intervals other than the default. Ray's agent works 90 ms for its page, and renews it every ten seconds."""


def rules_folder() -> Path:
    """Recording and alert rules: beside the package in a checkout, inside it in a wheel."""
    package = Path(str(files("zooserve_observability")))
    beside = package.parent / "prometheus" / "rules"
    return beside if beside.is_dir() else package / "_rules"


def scrape_file(addresses: Mapping[str, str], rules: Path | None, every: str = "5s") -> str:
    """prometheus.yml for servers at these addresses (job: host:port); jobs without an address are left out.

    Every `every` it scrapes and evaluates the `rules`, if there are any.
    """
    jobs = "".join(_job(job, addresses[job]) for job in JOBS if addresses.get(job))
    evaluated = f"rule_files: [{json.dumps(str(rules / '*.yml'))}]\n" if rules is not None else ""
    return (
        "# Written by `zooserve up`, with this platform's ports; the next start writes it anew.\n"
        f"global: {{ scrape_interval: {every}, evaluation_interval: {every} }}\n"
        f"{evaluated}"
        "scrape_configs:\n"
        f"{jobs}"
    )


def _job(job: str, address: str) -> str:
    interval = f"    scrape_interval: {_EVERY[job]}\n" if job in _EVERY else ""
    return (
        f"  - job_name: {job}\n"
        f"{interval}"
        f"    static_configs: [{{ targets: [{json.dumps(address)}] }}]\n"
        f"{_kept() if job == 'ray' else ''}"
    )


def _kept() -> str:
    families = json.dumps("|".join(RAY_FAMILIES))
    return (
        "    metric_relabel_configs:\n"
        f"      - {{ source_labels: [__name__], regex: {families}, action: keep }}\n"
        '      - { regex: "otel_scope_.*", action: labeldrop }\n'
    )
