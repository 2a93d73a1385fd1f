"""A Collector's configuration, held to what was recorded of its release: components, keys, pipelines, ports.

What it asks of the pipelines beyond the Collector itself: memory is watched first, spans are counted before they are
sampled, nothing is configured in vain, and nothing listens where only its own container could reach it.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from zooserve_cli.stack import keys, sampling
from zooserve_cli.stack.keys import key_findings
from zooserve_cli.stack.tree import Node, TreeError, parse_tree
from zooserve_ensembles.checking.findings import Finding, Place, Rule, Severity
from zooserve_ensembles.checking.reading import did_you_mean

__all__ = ["KINDS", "RULES", "collector_findings", "record"]

UNREADABLE = Rule("collector-unreadable", Severity.ERROR, "The Collector's configuration cannot be read")
UNKNOWN = Rule("collector-unknown-component", Severity.ERROR, "This release of the Collector has no such component")
RENAMED = Rule("collector-renamed", Severity.WARNING, "A component's old name, which a later release may not take")
UNDEFINED = Rule(
    "collector-undefined", Severity.ERROR, "A pipeline or the service names a component that is not configured"
)
UNUSED = Rule("collector-unused", Severity.ERROR, "A component is configured, and no pipeline uses it")
PIPELINE = Rule("collector-pipeline", Severity.ERROR, "A pipeline is empty, of no signal, or not for its components")
ORDER = Rule(
    "collector-order", Severity.ERROR, "Memory is not watched first, or batches are made before traces are sampled"
)
SAMPLED = Rule("collector-sampled-metrics", Severity.ERROR, "Spans are counted after most of them were sampled away")
INCOMPLETE = Rule("collector-incomplete", Severity.ERROR, "A component lacks a key that it does not start without")
PORT = Rule(
    "collector-port", Severity.ERROR, "Two components listen on one port, or one on its container's loopback only"
)
MISSPELT = Rule(
    "collector-misspelt", Severity.ERROR, "A word is all but an attribute of our spans, or a function of statements"
)

RULES = (
    UNREADABLE,
    UNKNOWN,
    RENAMED,
    UNDEFINED,
    UNUSED,
    PIPELINE,
    ORDER,
    SAMPLED,
    INCOMPLETE,
    PORT,
    MISSPELT,
    *keys.RULES,
    *sampling.RULES,
)

KINDS = ("receivers", "processors", "exporters", "connectors", "extensions")
_SIGNALS = ("traces", "metrics", "logs", "profiles")
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_WORD = re.compile(r"[A-Za-z_][\w.]{5,}\w")
_ALL_BUT = 0.9
_COUNTS_SPANS = "span_metrics"
_SAMPLES = "tail_sampling"


@cache  # part of the package: it does not change while a process runs
def record() -> Mapping[str, Any]:
    """What was recorded of the Collector, as it is written."""
    text = files("zooserve_cli.stack").joinpath("recorded/collector.yaml").read_text(encoding="utf-8")
    return dict(YAML(typ="safe", pure=True).load(text))


def collector_findings(text: str, file: Path) -> Iterator[Finding]:
    """What of a configuration the recorded release would refuse, or would not do as it is meant."""
    try:
        root = parse_tree(text, file)
    except TreeError as exc:
        yield UNREADABLE.at(Place(file, exc.line), str(exc))
        return
    if not root["service"]["pipelines"].entries:
        yield UNREADABLE.at(root["service"].key_place, "it has no service.pipelines: nothing would run")
        return
    configured = Configured(root)
    yield from key_findings(root, {**dict.fromkeys(KINDS, "any"), "service": record()["service"]}, "the configuration")
    yield from _components(configured)
    for pipeline in configured.pipelines:
        yield from _pipeline(configured, pipeline)
    yield from _in_vain(configured)
    yield from _sampled_metrics(configured)
    yield from _ports(configured)
    yield from _misspelt(root)


@dataclass(frozen=True)
class Pipeline:
    """One entry of service.pipelines."""

    name: str
    node: Node

    @property
    def signal(self) -> str:
        """What runs through it."""
        return self.name.partition("/")[0]

    def ids(self, part: str) -> list[str]:
        """The components that it names as its receivers, processors or exporters."""
        return [element.text for element in self.node[part].elements]


@dataclass(frozen=True)
class Configured:
    """A configuration, and what is asked of it again and again."""

    root: Node

    @cached_property
    def pipelines(self) -> tuple[Pipeline, ...]:
        """All of them, in the file's order."""
        return tuple(Pipeline(name, node) for name, node in self.root["service"]["pipelines"].entries.items())

    def has(self, part: str, identity: str) -> bool:
        """Whether a pipeline can name this as one of its receivers, processors or exporters."""
        kinds = (part,) if part == "processors" else (part, "connectors")
        return any(identity in self.root[kind].entries for kind in kinds)

    def users(self, part: str, identity: str) -> list[Pipeline]:
        """The pipelines that name it there."""
        return [pipeline for pipeline in self.pipelines if identity in pipeline.ids(part)]


def _type(identity: str) -> str:
    return identity.partition("/")[0]


def _known(kind: str, identity: str) -> Mapping[str, Any] | None:
    """What was recorded of a component, whatever of its names is used."""
    name = _type(identity)
    name = record()["renamed"].get(kind, {}).get(name, name)
    found: Mapping[str, Any] | None = record()["components"][kind].get(name)
    return found


def _components(configured: Configured) -> Iterator[Finding]:
    for kind in KINDS:
        for identity, node in configured.root[kind].entries.items():
            yield from _component(kind, identity, node)


def _component(kind: str, identity: str, node: Node) -> Iterator[Finding]:
    name = _type(identity)
    new = record()["renamed"].get(kind, {}).get(name)
    known = _known(kind, identity)
    if new is not None:
        yield RENAMED.at(
            node.key_place, f"{name} is called {new} since some releases: rename it here and in the pipelines"
        )
    if known is not None:
        yield from key_findings(node, known["keys"], identity)
        yield from _complete(node, known, identity)
        for statement in node["trace_statements"].elements if name == "transform" else ():
            if not isinstance(statement.value, str):  # a statement may stand alone
                yield from key_findings(statement, known["statements"], f"{identity}.trace_statements")
        if name == _SAMPLES:
            yield from sampling.policy_findings(node)
    elif new is None and name not in record()["others"][kind]:
        names = [*record()["components"][kind], *record()["others"][kind]]
        hint = did_you_mean(name, names)
        yield UNKNOWN.at(node.key_place, f"release {record()['release']} has no {kind[:-1]} {name}. {hint}".strip())


def _complete(node: Node, known: Mapping[str, Any], identity: str) -> Iterator[Finding]:
    for required in known.get("required", ()):
        if not any(node[key].is_there for key in required.split("|")):
            yield INCOMPLETE.at(node.key_place, f"{identity} needs {required.replace('|', ' or ')}")


def _pipeline(configured: Configured, pipeline: Pipeline) -> Iterator[Finding]:
    where = f"the pipeline {pipeline.name}"
    if pipeline.signal not in _SIGNALS:
        yield PIPELINE.at(pipeline.node.key_place, f"{where} begins with none of {', '.join(_SIGNALS)}")
    shape = {part: ["text"] for part in ("receivers", "processors", "exporters")}
    yield from key_findings(pipeline.node, shape, where)
    for part in ("receivers", "exporters"):
        if not pipeline.node[part].elements:
            yield PIPELINE.at(pipeline.node.key_place, f"{where} has no {part}")
    for part in ("receivers", "processors", "exporters"):
        for element in pipeline.node[part].elements:
            yield from _named(configured, pipeline, part, element)
    yield from _order(pipeline)


def _named(configured: Configured, pipeline: Pipeline, part: str, element: Node) -> Iterator[Finding]:
    identity = element.text
    if not configured.has(part, identity):
        there = [name for kind in (part, "connectors") for name in configured.root[kind].entries]
        hint = did_you_mean(identity, there)
        yield UNDEFINED.at(
            element.place, f"{pipeline.name} names {identity}, which is not among the {part}. {hint}".strip()
        )
        return
    kind = part if identity in configured.root[part].entries else "connectors"
    known = _known(kind, identity)
    if known is None:
        return
    signals = known.get("makes", known["signals"]) if kind == "connectors" and part == "receivers" else known["signals"]
    if pipeline.signal in _SIGNALS and pipeline.signal not in signals:
        yield PIPELINE.at(element.place, f"{identity} is for {', '.join(signals)}, not for {pipeline.signal}")


def _order(pipeline: Pipeline) -> Iterator[Finding]:
    types = [_type(identity) for identity in pipeline.ids("processors")]
    if "memory_limiter" in types[1:]:
        yield ORDER.at(
            pipeline.node["processors"].place,
            f"memory_limiter stands first in {pipeline.name}: what is before it piles up",
        )
    if _SAMPLES in types and "batch" in types[: types.index(_SAMPLES)]:
        yield ORDER.at(
            pipeline.node["processors"].place,
            f"batch stands behind {_SAMPLES} in {pipeline.name}: it breaks traces apart",
        )


def _in_vain(configured: Configured) -> Iterator[Finding]:
    for part in ("receivers", "processors", "exporters"):
        for identity, node in configured.root[part].entries.items():
            if not configured.users(part, identity):
                yield UNUSED.at(node.key_place, f"no pipeline names {identity} among its {part}")
    for identity, node in configured.root["connectors"].entries.items():
        for part, end in (("exporters", "feeds"), ("receivers", "reads from")):
            if not configured.users(part, identity):
                yield UNUSED.at(node.key_place, f"no pipeline {end} {identity}: name it among the {part} of one")
    started = configured.root["service"]["extensions"]
    for identity, node in configured.root["extensions"].entries.items():
        if identity not in [element.text for element in started.elements]:
            yield UNUSED.at(node.key_place, f"service.extensions does not start {identity}")
    for element in started.elements:
        if element.text not in configured.root["extensions"].entries:
            yield UNDEFINED.at(element.place, f"service.extensions names {element.text}, which is not configured")


def _sampled_metrics(configured: Configured) -> Iterator[Finding]:
    for pipeline in configured.pipelines:
        counters = [element for element in pipeline.node["exporters"].elements if _type(element.text) == _COUNTS_SPANS]
        if counters and _samples(configured, pipeline, frozenset()):
            yield SAMPLED.at(
                counters[0].place,
                f"{pipeline.name} samples before {counters[0].text} counts: feed it from a pipeline before",
            )


def _samples(configured: Configured, pipeline: Pipeline, seen: frozenset[str]) -> bool:
    """Whether traces were sampled in this pipeline, or in one that feeds it."""
    if _SAMPLES in map(_type, pipeline.ids("processors")):
        return True
    if pipeline.name in seen:
        return False
    feeding = (one for identity in pipeline.ids("receivers") for one in configured.users("exporters", identity))
    return any(_samples(configured, one, seen | {pipeline.name}) for one in feeding)


def _misspelt(root: Node) -> Iterator[Finding]:
    """Words in processors and connectors: one that matches no attribute is no fault to the Collector."""
    known = record()["words"]
    for kind in ("processors", "connectors"):
        for _, node in root[kind].walk():
            for found in _WORD.finditer(node.value if isinstance(node.value, str) else ""):
                if found[0] not in known and (near := get_close_matches(found[0], known, 1, _ALL_BUT)):
                    yield MISSPELT.at(node.line_of(found.start()), f"{found[0]} is unknown. Did you mean {near[0]}?")


def _ports(configured: Configured) -> Iterator[Finding]:
    endpoints = list(_endpoints(configured.root))
    taken = Counter(port for _, _, port in endpoints)
    for node, host, port in endpoints:
        if host in _LOOPBACK:
            yield PORT.at(node.place, f"{node.text or host} is the container's own loopback: listen on 0.0.0.0")
        if taken[port] > 1:
            yield PORT.at(node.place, f"port {port} is taken by {taken[port]} components")


def _endpoints(root: Node) -> Iterator[tuple[Node, str, str]]:
    """What listens: the part that says so, its host, its port."""
    listening = [
        *(
            protocol["endpoint"]
            for one in root["receivers"].entries.values()
            for protocol in one["protocols"].entries.values()
        ),
        *(one["endpoint"] for name, one in root["exporters"].entries.items() if _type(name) == "prometheus"),
        *(one["endpoint"] for one in root["extensions"].entries.values()),
    ]
    for node in listening:
        if node.is_there and "${" not in node.text:
            host, _, port = node.text.rpartition(":")
            yield node, host, port
    for reader in root.at("service", "telemetry", "metrics", "readers").elements:
        page = reader.at("pull", "exporter", "prometheus")
        if page["port"].is_there:
            yield page["host"] if page["host"].is_there else page, page["host"].text or "localhost", page["port"].text
