"""The committed configuration of the Collector is without fault; each fault that is put into it is found, by line."""

from pathlib import Path

import pytest

from zooserve_cli.stack.collector import KINDS, collector_findings, record
from zooserve_ensembles.checking.findings import Severity
from zooserve_observability.foreign import FOREIGN

FILE = Path("observability/otel/collector.yaml")
TEXT = (Path(__file__).parents[3] / FILE).read_text()


def found(text: str) -> set[tuple[str, int]]:
    """Rules and lines."""
    return {(finding.rule, finding.place.line) for finding in collector_findings(text, FILE)}


def line_of(text: str, part: str) -> int:
    """Where a part first stands."""
    return text[: text.index(part)].count("\n") + 1


def test_the_committed_file_is_without_fault() -> None:
    assert not [str(finding) for finding in collector_findings(TEXT, FILE)]


FAULTS = {
    "an unknown component": (
        "  memory_limiter:\n",
        "  memory_limitr:\n",
        "collector-unknown-component",
        "memory_limitr:",
    ),
    "an unknown key": ("limit_mib: 768", "limit_mb: 768", "config-unknown-key", "limit_mb"),
    "an unknown key of the service": ("  telemetry:", "  telemetri:", "config-unknown-key", "telemetri:"),
    "a key at the wrong level": ("    decision_wait: 150s", "    latency: 150s", "config-unknown-key", "latency: 150s"),
    "a text for a number": ("num_traces: 20000", "num_traces: many", "config-value", "num_traces"),
    "a time without its unit": ("decision_wait: 150s", "decision_wait: 150", "config-value", "decision_wait: 150"),
    "a time of no unit": ("    timeout: 1s", "    timeout: 1sec", "config-value", "timeout: 1sec"),
    "a text for a yes": (
        "enable_open_metrics: true",
        'enable_open_metrics: "yes"',
        "config-value",
        "enable_open_metrics",
    ),
    "one status for a list": ("status_codes: [ERROR]", "status_codes: ERROR", "config-value", "status_codes"),
    "an unknown status": ("status_codes: [ERROR]", "status_codes: [FAILED]", "config-value", "status_codes"),
    "an unknown type of policy": ("type: probabilistic", "type: probability", "config-value", "probability"),
    "an unknown compression": ("compression: gzip", "compression: brotli", "config-value", "brotli"),
    "a policy without its settings": (
        "type: numeric_attribute\n",
        "type: boolean_attribute\n",
        "collector-policy",
        "boolean_attribute",
    ),
    "two policies of one name": (
        "name: answered-5xx",
        "name: failed",
        "collector-policy",
        "name: failed\n        type: numeric",
    ),
    "a policy that keeps nothing": ("percentage: 10 }", "percentage: 0 }", "collector-policy", "sampling_percentage"),
    "a number without an end": (", max_value: 599 }", " }", "collector-policy", "name: answered-5xx"),
    "an exporter that is not there": (
        "exporters: [otlp_grpc/tempo]",
        "exporters: [otlp_grpc/temp]",
        "collector-undefined",
        "[otlp_grpc/temp]",
    ),
    "a processor that is not there": (
        "[tail_sampling, batch]",
        "[tail_sampling, batches]",
        "collector-undefined",
        "batches",
    ),
    "an extension that is not there": (
        "extensions: [health_check]",
        "extensions: [health]",
        "collector-undefined",
        "[health]",
    ),
    "a processor in vain": ("[tail_sampling, batch]", "[tail_sampling]", "collector-unused", "  batch:"),
    "a connector without an end": (
        "exporters: [span_metrics, forward/sampling]",
        "exporters: [span_metrics]",
        "collector-unused",
        "forward/sampling: {}",
    ),
    "an extension in vain": ("extensions: [health_check]", "extensions: []", "collector-unused", "health_check:"),
    "a pipeline without receivers": ("receivers: [otlp]", "receivers: []", "collector-pipeline", "    traces:\n"),
    "a pipeline of no signal": ("    metrics/spans:", "    metric/spans:", "collector-pipeline", "metric/spans"),
    "traces to a metrics exporter": (
        "exporters: [otlp_grpc/tempo]",
        "exporters: [prometheus]",
        "collector-pipeline",
        "exporters: [prometheus]",
    ),
    "memory watched too late": (
        "[memory_limiter, transform/content]",
        "[transform/content, memory_limiter]",
        "collector-order",
        "[transform/content, memory",
    ),
    "batches that break traces": (
        "[tail_sampling, batch]",
        "[batch, tail_sampling]",
        "collector-order",
        "[batch, tail",
    ),
    "metrics of what was sampled": (
        "exporters: [otlp_grpc/tempo]",
        "exporters: [otlp_grpc/tempo, span_metrics]",
        "collector-sampled-metrics",
        "[otlp_grpc/tempo, span",
    ),
    "a port taken twice": (
        "endpoint: 0.0.0.0:8889",
        "endpoint: 0.0.0.0:4318",
        "collector-port",
        "endpoint: 0.0.0.0:4318",
    ),
    "a port of the loopback": (
        "endpoint: 0.0.0.0:4318",
        "endpoint: localhost:4318",
        "collector-port",
        "localhost:4318",
    ),
    "its own metrics on the loopback": ("host: 0.0.0.0", "host: 127.0.0.1", "collector-port", "host: 127.0.0.1"),
    "a key given twice": (
        "    timeout: 10s\n",
        "    timeout: 10s\n    timeout: 11s\n",
        "collector-unreadable",
        "timeout: 11s",
    ),
    "an exporter to nowhere": (
        "    endpoint: tempo:4317\n",
        "",
        "collector-incomplete",
        "  otlp_grpc/tempo:",
    ),
    "memory without a limit": (
        "    limit_mib: 768\n",
        "",
        "collector-incomplete",
        "  memory_limiter:",
    ),
    "a host without its port": (
        "endpoint: tempo:4317",
        "endpoint: tempo",
        "config-value",
        "endpoint: tempo",
    ),
    "no port at all": (
        "endpoint: 0.0.0.0:4318",
        "endpoint: 0.0.0.0:43180000",
        "config-value",
        "endpoint: 0.0.0.0:43180000",
    ),
    "an unknown key of a statement": ("        conditions:", "        condition:", "config-unknown-key", "condition:"),
}


@pytest.mark.parametrize(("old", "new", "rule", "where"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_found_where_it_stands(old: str, new: str, rule: str, where: str) -> None:
    assert TEXT.count(old) >= 1
    faulty = TEXT.replace(old, new, 1)
    assert (rule, line_of(faulty, where)) in found(faulty)


def test_an_old_name_is_a_warning() -> None:
    text = TEXT.replace("span_metrics", "spanmetrics").replace("otlp_grpc/tempo", "otlp/tempo")
    findings = list(collector_findings(text, FILE))
    assert {finding.rule for finding in findings} == {"collector-renamed"}
    assert {finding.severity for finding in findings} == {Severity.WARNING}


def test_a_component_whose_keys_were_not_recorded_is_taken_as_it_is() -> None:
    text = TEXT.replace("  batch:\n    timeout: 1s", "  attributes:\n    whatever: 1s").replace(
        "sampling, batch]", "sampling, attributes]"
    )
    text = text.replace("    send_batch_size: 1024\n    send_batch_max_size: 2048\n", "")
    assert found(text) == set()


def test_metrics_behind_two_pipelines_are_found_to_be_of_sampled_traces() -> None:
    text = TEXT.replace("forward/sampling: {}", "forward/sampling: {}\n  forward/kept: {}")
    text = text.replace("exporters: [otlp_grpc/tempo]", "exporters: [forward/kept]")
    text = text.replace("exporters: [span_metrics, forward/sampling]", "exporters: [forward/sampling]")
    behind = "    traces/kept:\n      receivers: [forward/kept]\n      exporters: [otlp_grpc/tempo, span_metrics]\n"
    text = text.replace("    metrics/spans:", f"{behind}    metrics/spans:")
    assert found(text) == {("collector-sampled-metrics", line_of(text, "[otlp_grpc/tempo, span_metrics]"))}


@pytest.mark.parametrize("text", ["", "[]", "service: {}", "a: [", "service: { pipelines: { traces: 3 } }", "{{"])
def test_what_is_no_configuration_is_told_and_raises_nothing(text: str) -> None:
    assert found(text)


def test_the_record_is_of_the_tag_that_the_file_names() -> None:
    assert f"contrib {record()['release']}," in TEXT
    assert set(record()["components"]) == set(record()["others"]) == set(KINDS)


def test_what_rules_and_dashboards_ask_of_the_collector_is_what_it_shows_as_it_is_set_here() -> None:
    asked = {metric.series for metric in FOREIGN if metric.source == "collector"}
    assert asked
    assert asked <= set(record()["series"])
    assert "without_type_suffix: false" in TEXT  # so that counters end in _total
    (measured,) = [metric.series for metric in FOREIGN if metric.source == "spanmetrics"]
    assert measured == f"{'traces.span.metrics'.replace('.', '_')}_duration_seconds"
    assert "namespace: traces.span.metrics\n    histogram:\n      unit: s\n" in TEXT
