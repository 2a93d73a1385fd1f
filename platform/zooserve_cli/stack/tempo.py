"""A Tempo's configuration, held to what was recorded of its release."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from zooserve_cli.stack import keys
from zooserve_cli.stack.keys import key_findings
from zooserve_cli.stack.tree import Node, TreeError, parse_tree
from zooserve_ensembles.checking.findings import Finding, Place, Rule, Severity

__all__ = ["RULES", "record", "tempo_findings"]

UNREADABLE = Rule("tempo-unreadable", Severity.ERROR, "Tempo's configuration cannot be read")
STORAGE = Rule(
    "tempo-storage", Severity.ERROR, "Traces have no place, or are forgotten before they can be looked up there"
)
RECEIVER = Rule("tempo-receiver", Severity.ERROR, "Nothing takes traces, or only on the container's own loopback")

RULES = (UNREADABLE, STORAGE, RECEIVER, *keys.RULES)

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_POLL_S = 300.0
"""Tempo's own default of how often it looks for new blocks."""
_COMPLETE_S = 900.0
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@cache  # part of the package: it does not change while a process runs
def record() -> Mapping[str, Any]:
    """What was recorded of Tempo, as it is written."""
    text = files("zooserve_cli.stack").joinpath("recorded/tempo.yaml").read_text(encoding="utf-8")
    return dict(YAML(typ="safe", pure=True).load(text))


def tempo_findings(text: str, file: Path) -> Iterator[Finding]:
    """What of a configuration the recorded release would refuse, or would not do as it is meant."""
    try:
        root = parse_tree(text, file)
    except TreeError as exc:
        yield UNREADABLE.at(Place(file, exc.line), str(exc))
        return
    yield from key_findings(root, record()["config"]["keys"], "the configuration")
    yield from _storage(root)
    yield from _receivers(root)


def _storage(root: Node) -> Iterator[Finding]:
    trace = root["storage"]["trace"]
    backend = trace["backend"].text
    if not backend:
        yield STORAGE.at(trace.key_place, "storage.trace has no backend")
    elif backend == "local" and not trace["local"]["path"].text:
        yield STORAGE.at(trace["backend"].place, "the backend is local, and storage.trace.local has no path")
    if not trace["wal"]["path"].text:
        yield STORAGE.at(
            trace.key_place, "storage.trace.wal has no path: what was not flushed is lost with the container"
        )
    complete = root["ingester"]["complete_block_timeout"]
    poll_s = _seconds(trace["blocklist_poll"], _POLL_S)
    if _seconds(complete, _COMPLETE_S) < poll_s:
        yield STORAGE.at(
            complete.place,
            "ingester.complete_block_timeout is shorter than storage.trace.blocklist_poll: traces vanish between",
        )
    retention = root["compactor"]["compaction"]["block_retention"]
    if retention.is_there and _seconds(retention, poll_s) < poll_s:
        yield STORAGE.at(retention.place, "block_retention is shorter than storage.trace.blocklist_poll")


def _receivers(root: Node) -> Iterator[Finding]:
    receivers = root["distributor"]["receivers"]
    protocols = receivers["otlp"]["protocols"].entries
    if not receivers.entries:
        yield RECEIVER.at(root["distributor"].key_place, "distributor.receivers is empty: Tempo takes no traces")
    elif "otlp" in receivers.entries and not protocols:
        yield RECEIVER.at(receivers["otlp"].key_place, "the otlp receiver has no protocols: name grpc or http")
    for name, protocol in protocols.items():
        endpoint = protocol["endpoint"]
        # Since 2.7 a protocol without an endpoint listens on localhost.
        if not endpoint.text or endpoint.text.rpartition(":")[0] in _LOOPBACK:
            yield RECEIVER.at(protocol.key_place, f"otlp over {name} listens on the container's own loopback: 0.0.0.0")


def _seconds(node: Node, default: float) -> float:
    parts = _PART.findall(node.text)
    return sum(float(number) * _UNITS_S[unit] for number, unit in parts) if parts else default
