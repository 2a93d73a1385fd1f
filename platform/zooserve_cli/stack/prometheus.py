"""Rules of Prometheus: its rule files, keys and certificates are where its configuration says, in its container."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any

from ruamel.yaml import YAML

from zooserve_cli.stack.invocation import Invocation, invocations
from zooserve_cli.stack.keys import key_findings
from zooserve_cli.stack.listening import configuration, configured_path
from zooserve_cli.stack.service import Service
from zooserve_cli.stack.stack import Stack
from zooserve_cli.stack.tree import Node, TreeError, parse_tree
from zooserve_ensembles.checking.findings import Finding, Place, Rule, Severity
from zooserve_ensembles.checking.reading import did_you_mean

__all__ = ["RULES", "configuration_findings", "prometheus_findings", "record"]

RULE_FILES = Rule("rule-files", Severity.ERROR, "Prometheus is told rule files that its container does not have")
CREDENTIALS = Rule(
    "credentials-file", Severity.ERROR, "Prometheus is told a key's file that its container does not have"
)
JOB = Rule(
    "scrape-job",
    Severity.ERROR,
    "A scrape job has no name, the name of another, or no target, or there is no job at all",
)

UNSCRAPED = Rule("job-unscraped", Severity.ERROR, "A rule asks for a job that nothing scrapes")

RULES = (RULE_FILES, CREDENTIALS, JOB, UNSCRAPED)

_ASKED = re.compile(r'\bjob=~?\\?"([\w|-]+)\\?"')

_FILES = ("credentials_file", "bearer_token_file", "password_file", "ca_file", "cert_file", "key_file")


@cache  # part of the package: it does not change while a process runs
def record() -> Mapping[str, Any]:
    """What was recorded of Prometheus, as it is written."""
    text = files("zooserve_cli.stack").joinpath("recorded/prometheus.yaml").read_text(encoding="utf-8")
    return dict(YAML(typ="safe", pure=True).load(text))


def configuration_findings(text: str, file: Path) -> Iterator[Finding]:
    """Keys and values that Prometheus would refuse. A file that cannot be read is told by `config-unreadable`."""
    with suppress(TreeError):
        yield from key_findings(parse_tree(text, file), record()["config"]["keys"], "the configuration")


def prometheus_findings(stack: Stack) -> Iterator[Finding]:
    """Every Prometheus of the profile, whose configuration is a file of the host."""
    for service in stack.services.values():
        for call in invocations(stack, service):
            if call.program != "prometheus":
                continue
            program = stack.programs[call.program]
            tree = configuration(stack, service, program, call)
            if tree is not None:
                folder = PurePosixPath(configured_path(program, call)).parent
                yield from _rule_files(stack, service, tree, folder)
                yield from _key_files(stack, service, tree, folder)
                yield from _jobs(tree)
                yield from _unscraped(stack, service, tree, folder, call)
                if not _is_fed(tree, call):
                    yield JOB.at(
                        tree["scrape_configs"].key_place, "nothing is scraped: list the jobs under scrape_configs"
                    )


def _rule_files(stack: Stack, service: Service, tree: Node, folder: PurePosixPath) -> Iterator[Finding]:
    for part in tree["rule_files"].elements:
        path = folder / part.text
        host = stack.on_host(service, str(path.parent))
        if host is None or not part.text or not _matching(host, path.name):
            yield RULE_FILES.at(part.place, f"{service.name} finds no {path}: mount the rules there")


def _matching(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(folder.glob(pattern))
    except (OSError, ValueError, NotImplementedError):
        return []


def _unscraped(
    stack: Stack, service: Service, tree: Node, folder: PurePosixPath, call: Invocation
) -> Iterator[Finding]:
    """Jobs that rules select by name, where the label can come from nowhere but a scrape job."""
    jobs = {job["job_name"].text for job in tree["scrape_configs"].elements}
    if not jobs or _labels_jobs(tree) or any("receiver" in word.text for word in call.words):
        return
    for part in tree["rule_files"].elements:
        path = folder / part.text
        host = stack.on_host(service, str(path.parent))
        for file in _matching(host, path.name) if host is not None and part.text else []:
            for number, line in enumerate(_lines(file), 1):
                for name in dict.fromkeys(name for found in _ASKED.findall(line) for name in found.split("|")):
                    if name and name not in jobs:
                        near = did_you_mean(name, sorted(jobs))
                        yield UNSCRAPED.at(Place(file, number), f"nothing scrapes a job {name}. {near}".strip())


def _labels_jobs(tree: Node) -> bool:
    """Whether the label `job` may be given by something else than a job's name."""
    if any(tree[key].is_there for key in ("otlp", "scrape_config_files", "remote_read")):
        return True
    for path, node in tree["scrape_configs"].walk():
        if path[-1:] in (("honor_labels",), ("file_sd_configs",), ("http_sd_configs",), ("kubernetes_sd_configs",)):
            return True
        if path[-1:] == ("job",) or (path[-1:] == ("target_label",) and node.text == "job"):
            return True
    return False


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _key_files(stack: Stack, service: Service, tree: Node, folder: PurePosixPath) -> Iterator[Finding]:
    secrets = {stack.path(node["file"].text) for node in stack.root["secrets"].entries.values() if node["file"].text}
    for path, node in tree.walk():
        if not path or path[-1] not in _FILES or not node.text:
            continue
        inside = str(folder / node.text)
        if any(grant.target == inside for grant in (*service.secrets, *service.configs)):
            continue
        host = stack.on_host(service, inside)
        # The file of a secret may have yet to be made: that is told where the secret is declared.
        if host is None or (not host.is_file() and host not in secrets):
            yield CREDENTIALS.at(
                node.place, f"{service.name} has no {inside}: give it the secret, or mount the file there"
            )


def _is_fed(tree: Node, call: Invocation) -> bool:
    """Whether it asks somebody, or takes what others send."""
    asks = any(tree[key].elements for key in ("scrape_configs", "scrape_config_files", "remote_read"))
    return asks or tree["otlp"].is_there or any("receiver" in word.text for word in call.words)


def _jobs(tree: Node) -> Iterator[Finding]:
    seen: dict[str, int] = {}
    asked: dict[tuple[str, str], str] = {}
    for job in tree["scrape_configs"].elements:
        name = job["job_name"].text
        if not name:
            yield JOB.at(job.place, "give the scrape job a job_name")
        elif name in seen:
            yield JOB.at(job["job_name"].place, f"the job {name} is there already, on line {seen[name]}")
        seen[name] = job.place.line
        for place, target in _targets(job):
            if (other := asked.setdefault((target, job["metrics_path"].text), name)) != name:
                yield JOB.at(place, f"the job {name} scrapes {target}, as {other} does: name its own port")
        if not any(
            key.endswith("_configs") and inner.elements and "relabel" not in key for key, inner in job.entries.items()
        ):
            yield JOB.at(job.place, f"the job {name} has no targets: give it static_configs or dns_sd_configs")
        for part in job["static_configs"].elements:
            if not part["targets"].elements:
                yield JOB.at(part.place, f"the job {name} has a static_configs without targets: list host:port")
        for part in job["dns_sd_configs"].elements:
            yield from _looked_up(name, part)
        path = job["metrics_path"]
        if path.text and path.text != "/metrics" and get_close_matches(path.text, ["/metrics"], 1, 0.85):
            yield JOB.at(path.place, f"the job {name} asks for {path.text}. Did you mean /metrics?")


def _targets(job: Node) -> Iterator[tuple[Place, str]]:
    """Where a job that rewrites no address asks."""
    if job["params"].is_there or job["relabel_configs"].is_there:
        return
    for part in job["dns_sd_configs"].elements:
        for name in part["names"].elements:
            yield name.place, f"{name.text}:{part['port'].text}"
    for part in job["static_configs"].elements:
        for target in part["targets"].elements:
            yield target.place, target.text


def _looked_up(name: str, part: Node) -> Iterator[Finding]:
    kind = part["type"].text or "SRV"
    if not part["names"].elements:
        yield JOB.at(part.place, f"the job {name} looks up nothing: list names")
    if kind != "SRV" and not part["port"].is_there:
        yield JOB.at(part.place, f"the job {name} looks up {kind} records, which have no port: give it one")
    if kind == "SRV" and any(not one.text.startswith("_") for one in part["names"].elements):
        yield JOB.at(part.place, f"the job {name} looks up SRV records, which services have none of: type: A")
