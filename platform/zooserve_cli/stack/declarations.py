"""Rules of names: each network, volume, secret and configuration that is used is declared, and the other way round."""

from collections.abc import Iterator, Mapping

from zooserve_cli.stack.service import Service
from zooserve_cli.stack.stack import Stack
from zooserve_ensembles.checking.findings import Finding, Place, Rule, Severity
from zooserve_ensembles.checking.reading import did_you_mean

__all__ = ["RULES", "declaration_findings"]

UNDECLARED = Rule(
    "undeclared", Severity.ERROR, "A service uses a network, volume, secret or configuration that is not declared"
)
UNUSED = Rule(
    "unused", Severity.ERROR, "A network, volume, secret or configuration is declared, and no service uses it"
)

RULES = (UNDECLARED, UNUSED)


def declaration_findings(stack: Stack) -> Iterator[Finding]:
    """Names against declarations, over the services of all profiles."""
    for kind, noun in (
        ("networks", "network"),
        ("volumes", "volume"),
        ("secrets", "secret"),
        ("configs", "configuration"),
    ):
        declared = stack.root[kind].entries
        used = {name: place for service in stack.everything.values() for name, place in _used(service, kind).items()}
        for name, place in used.items():
            if name not in declared and not (kind == "networks" and name == "default"):
                near = did_you_mean(name, sorted(declared))
                yield UNDECLARED.at(place, f"no {noun} {name} is declared under {kind}. {near}".strip())
        for name, node in declared.items():
            if name not in used and not (kind == "networks" and name == "default"):
                yield UNUSED.at(node.key_place, f"no service uses the {noun} {name}: remove it, or give it to one")


def _used(service: Service, kind: str) -> Mapping[str, Place]:
    match kind:
        case "networks":
            return {joined.network: joined.place for joined in service.networks if joined.network}
        case "volumes":
            return {mount.source: mount.place for mount in service.mounts if mount.kind == "volume" and mount.source}
        case "secrets":
            built = {part.text: part.place for part in service.node["build"]["secrets"].elements if part.text}
            return {**built, **{grant.source: grant.place for grant in service.secrets}}
    return {grant.source: grant.place for grant in service.configs}
