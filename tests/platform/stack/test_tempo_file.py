"""The committed configuration of Tempo is without fault, and each fault that is put into it is found, by line."""

from pathlib import Path

import pytest

from zooserve_cli.stack.tempo import record, tempo_findings

FILE = Path("observability/tempo/tempo.yaml")
TEXT = (Path(__file__).parents[3] / FILE).read_text()


def found(text: str) -> set[tuple[str, int]]:
    """Rules and lines."""
    return {(finding.rule, finding.place.line) for finding in tempo_findings(text, FILE)}


def line_of(text: str, part: str) -> int:
    """Where a part first stands."""
    return text[: text.index(part)].count("\n") + 1


def test_the_committed_file_is_without_fault() -> None:
    assert not [str(finding) for finding in tempo_findings(TEXT, FILE)]


FAULTS = {
    "an unknown key": ("http_listen_port", "http_port", "config-unknown-key", "http_port"),
    "a key of the old overrides": ("  defaults:", "  default:", "config-unknown-key", "default:"),
    "a part of another release": ("ingester:", "live_store:", "config-unknown-key", "live_store:"),
    "a text for a port": ("http_listen_port: 3200", "http_listen_port: http", "config-value", "http_listen_port"),
    "a time without its unit": ("block_retention: 168h", "block_retention: 168", "config-value", "block_retention"),
    "an unknown backend": ("backend: local", "backend: disk", "config-value", "backend: disk"),
    "no place for traces": ("path: /var/tempo/blocks", "path:", "tempo-storage", "backend: local"),
    "no place for the log": ("path: /var/tempo/wal", "path:", "tempo-storage", "  trace:"),
    "blocks that vanish": (
        "complete_block_timeout: 15m",
        "complete_block_timeout: 1m",
        "tempo-storage",
        "complete_block_timeout",
    ),
    "traces forgotten at once": (
        "block_retention: 168h",
        "block_retention: 1m",
        "tempo-storage",
        "block_retention: 1m",
    ),
    "a receiver of the loopback": ("endpoint: 0.0.0.0:4317", "endpoint: 127.0.0.1:4317", "tempo-receiver", "grpc:"),
    "a receiver without address": ("\n          endpoint: 0.0.0.0:4317", " {}", "tempo-receiver", "grpc:"),
}


@pytest.mark.parametrize(("old", "new", "rule", "where"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_found_where_it_stands(old: str, new: str, rule: str, where: str) -> None:
    assert old in TEXT
    faulty = TEXT.replace(old, new, 1)
    assert (rule, line_of(faulty, where)) in found(faulty)


@pytest.mark.parametrize("text", ["", "[]", "a: [", "storage: 3"])
def test_what_is_no_configuration_is_told_and_raises_nothing(text: str) -> None:
    assert found(text)


def test_the_record_is_of_the_tag_that_the_file_names() -> None:
    assert f"grafana/tempo {record()['release']} " in TEXT
