"""From a compose file to a Stack: lines, variables, `extends`; and the findings of what cannot be read."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from zooserve_cli.stack.engine_values import REFUSED, engine_findings
from zooserve_cli.stack.env_file import EnvFile, read_env
from zooserve_cli.stack.interpolation import Fault, interpolated
from zooserve_cli.stack.merging import extended, over
from zooserve_cli.stack.recorded import recorded_programs
from zooserve_cli.stack.service import Service
from zooserve_cli.stack.stack import Placed, Stack
from zooserve_cli.stack.tree import EMPTY, Node, TreeError, read_tree
from zooserve_ensembles.checking.findings import Finding, Place, Rule, Severity
from zooserve_ensembles.checking.reading import did_you_mean

__all__ = ["RULES", "read_stack", "reading_findings"]

UNREADABLE = Rule("compose-unreadable", Severity.ERROR, "The compose file cannot be read, or declares no service")
SHAPE = Rule(
    "compose-shape", Severity.ERROR, "A part of the compose file is no mapping, list or text where it must be one"
)
UNKNOWN_KEY = Rule(
    "unknown-key",
    Severity.ERROR,
    "Compose knows no such key at the top, in a service, its build, healthcheck or deploy",
)
VALUE = Rule("compose-value", Severity.ERROR, "A size, a time or a number that Compose cannot read")
INTERPOLATION = Rule("interpolation", Severity.ERROR, "A `$` that Compose cannot interpolate")
EXTENDS = Rule("extends", Severity.ERROR, "`extends` names no service that is there, or leads back to itself")
ELSEWHERE = Rule("not-followed", Severity.WARNING, "`include`: what is there is not looked at")

RULES = (UNREADABLE, SHAPE, UNKNOWN_KEY, VALUE, REFUSED, INTERPOLATION, EXTENDS, ELSEWHERE)

_TOP = ("name", "version", "services", "networks", "volumes", "secrets", "configs", "include", "models")
_SERVICE = tuple(
    re.findall(
        r"\w+",
        """
        annotations attach build blkio_config cap_add cap_drop cgroup cgroup_parent command configs container_name
        cpu_count cpu_percent cpu_period cpu_quota cpu_rt_period cpu_rt_runtime cpu_shares cpus cpuset credential_spec
        depends_on deploy develop device_cgroup_rules devices dns dns_opt dns_search domainname entrypoint env_file
        environment expose extends external_links extra_hosts gpus group_add healthcheck hostname image init ipc
        isolation label_file labels links logging mac_address mem_limit mem_reservation mem_swappiness memswap_limit
        models network_mode networks oom_kill_disable oom_score_adj pid pids_limit platform ports post_start pre_stop
        privileged profiles provider pull_policy read_only restart runtime scale secrets security_opt shm_size
        stdin_open stop_grace_period stop_signal storage_opt sysctls tmpfs tty ulimits use_api_socket user userns_mode
        uts volumes volumes_from working_dir
        """,
    )
)
_LONGEST = 20
"""Services that one extends, one behind the other."""


def read_stack(
    files: Sequence[Path], env_file: Path | None, example_file: Path | None
) -> tuple[Stack | None, list[Finding]]:
    """The stack of one file, or of several laid over each other, with the variables of `env_file`; None where a file
    cannot be read, which is then told."""
    env = (read_env(env_file) if env_file else None) or EnvFile(env_file or Path(".env"))
    uses: list[Placed] = []
    faults: list[tuple[Place, Fault]] = []
    sources: list[Node] = []
    for file in files:
        try:
            raw = read_tree(file)
        except TreeError as exc:
            return None, [UNREADABLE.at(Place(file, exc.line), str(exc))]
        if not raw["services"].is_mapping or not raw["services"].entries:
            return None, [UNREADABLE.at(Place(file, raw["services"].key_place.line), "it declares no service")]
        sources.append(_replaced(raw, env.values, uses, faults))
    folder = files[0].parent
    root = _with_bases(sources[0], folder, env)
    for source in sources[1:]:
        root = over(root, _with_bases(source, folder, env))
    return Stack(
        files[0],
        root,
        {name: Service(name, node) for name, node in root["services"].entries.items()},
        env,
        read_env(example_file) if example_file else None,
        tuple(uses),
        tuple(faults),
        programs=recorded_programs(),
        sources=tuple(sources),
    ), []


def _with_bases(source: Node, folder: Path, env: EnvFile) -> Node:
    """A file's tree in which each service has what it extends."""
    services = source["services"]

    def of(file: str) -> Node:
        return _services_of(file, folder, env) if file else services

    whole = {name: extended(node, of, (("", name),)) for name, node in services.entries.items()}
    return replace(source, value={**source.entries, "services": replace(services, value=whole)})


def _services_of(file: str, folder: Path, env: EnvFile) -> Node:
    try:
        return _replaced(read_tree(folder / file), env.values, [], [])["services"]
    except (TreeError, ValueError):
        return EMPTY


def reading_findings(stack: Stack) -> Iterator[Finding]:
    """What of the file Compose could not take, or is not looked at here."""
    for place, fault in stack.faults:
        yield INTERPOLATION.at(place, fault.message)
    for source in stack.sources:
        yield from _file(stack, source)
    for name, node in stack.root["services"].entries.items():
        if node.is_mapping and not node["image"].text and not node["build"].is_there:
            yield SHAPE.at(node.key_place, f"the service {name} has neither image nor build: give it one")


def _file(stack: Stack, source: Node) -> Iterator[Finding]:
    for key, node in source.entries.items():
        if key not in _TOP and not key.startswith("x-"):
            yield UNKNOWN_KEY.at(node.key_place, f"a compose file has no {key}. {did_you_mean(key, _TOP)}".strip())
        elif key in ("networks", "volumes", "secrets", "configs") and node.is_there and not node.is_mapping:
            yield SHAPE.at(node.key_place, f"{key} must be a mapping of names")
    if source["include"].is_there:
        yield ELSEWHERE.at(source["include"].key_place, "the files of `include` are not looked at: check them, too")
    for name, node in source["services"].entries.items():
        yield from _service(name, node)
        yield from _extends(stack, name, node, source["services"])


def _service(name: str, node: Node) -> Iterator[Finding]:
    if not node.is_mapping:
        yield SHAPE.at(node.key_place, f"the service {name} must be a mapping")
        return
    for key, inner in node.entries.items():
        if key not in _SERVICE and not key.startswith("x-"):
            yield UNKNOWN_KEY.at(inner.key_place, f"a service has no {key}. {did_you_mean(key, _SERVICE)}".strip())
        elif key in _SHAPES and inner.is_there and not _SHAPES[key](inner):
            yield SHAPE.at(inner.key_place, f"{key} of {name} has a shape that Compose does not take")
    for path, known in _INNER.items():
        for key, inner in node.at(*path).entries.items():
            if key not in known.split() and not key.startswith("x-"):
                near = did_you_mean(key, known.split())
                yield UNKNOWN_KEY.at(inner.key_place, f"{'.'.join(path)} has no {key}. {near}".strip())
    yield from _values(node)
    yield from engine_findings(name, node)


_SHAPES: dict[str, Callable[[Node], bool]] = {
    **dict.fromkeys(("ports", "volumes", "secrets", "configs", "profiles", "expose"), lambda node: node.is_list),
    **dict.fromkeys(("environment", "networks", "depends_on"), lambda node: not node.is_scalar),
    **dict.fromkeys(("healthcheck", "deploy"), lambda node: node.is_mapping),
    **dict.fromkeys(("command", "entrypoint"), lambda node: not node.is_mapping),
    "build": lambda node: not node.is_list,
    **dict.fromkeys(("image", "user", "network_mode", "pid", "restart"), lambda node: node.is_scalar),
}
_INNER = {
    ("healthcheck",): "test interval timeout retries start_period start_interval disable",
    (
        "build",
    ): "context dockerfile dockerfile_inline args target platforms cache_from cache_to no_cache pull labels ssh "
    "secrets tags network extra_hosts shm_size ulimits privileged isolation additional_contexts "
    "entitlements attest provenance sbom",
    ("deploy",): "mode replicas resources restart_policy update_config rollback_config placement labels endpoint_mode",
    ("deploy", "resources"): "limits reservations",
    ("deploy", "resources", "reservations"): "cpus memory devices generic_resources",
}
"""Keys of a service's parts, by the way to them."""


def _values(node: Node) -> Iterator[Finding]:
    for kind, pattern, paths in _VALUES:
        for path in paths:
            inner = node.at(*path.split("."))
            if inner.is_there and not re.fullmatch(pattern, inner.text):
                yield VALUE.at(inner.place, f"{path} cannot be {inner.text or 'this'}: write {kind}")


_SIZE = r"(?i)\d+(\.\d+)?\s*([bkmgt]b?)?"
_TIME = r"(\d+(\.\d+)?(ns|us|ms|s|m|h|d))+|0"
_VALUES = (
    ("a size, as 8g", _SIZE, ("mem_limit", "mem_reservation", "shm_size", "deploy.resources.limits.memory")),
    (
        "a time, as 30s",
        _TIME,
        (
            "stop_grace_period",
            *(f"healthcheck.{name}" for name in ("interval", "timeout", "start_period", "start_interval")),
        ),
    ),
    ("a whole number", r"-?\d+", ("pids_limit", "healthcheck.retries")),
)


def _extends(stack: Stack, name: str, node: Node, services: Node) -> Iterator[Finding]:
    seen = [name]
    while node["extends"].is_there:
        extends = node["extends"]
        if file := extends["file"].text:
            services = _services_of(file, stack.folder, stack.env)
        base = extends["service"].text or extends.text
        if base not in services.entries:
            near = did_you_mean(base, sorted(services.entries))
            where = file or "here"
            yield EXTENDS.at(extends.key_place, f"there is no service {base} in {where} to extend. {near}".strip())
            return
        if base in seen and not file:
            yield EXTENDS.at(extends.key_place, f"{' extends '.join([*seen, base])}: break the circle")
            return
        if len(seen) > _LONGEST:
            return
        seen.append(base)
        node = services[base]


def _replaced(node: Node, variables: Mapping[str, str], uses: list[Placed], faults: list[tuple[Place, Fault]]) -> Node:
    """The same tree with the variables of its texts replaced; keys are left as they are, as by Compose."""
    if node.is_mapping:
        entries = {key: _replaced(inner, variables, uses, faults) for key, inner in node.entries.items()}
        return replace(node, value=entries)
    if node.is_list:
        return replace(node, value=tuple(_replaced(inner, variables, uses, faults) for inner in node.elements))
    if not isinstance(node.value, str) or "$" not in node.value:
        return node
    found = interpolated(node.value, variables)
    uses += [Placed(use, node.line_of(use.offset)) for use in found.uses]
    faults += [(node.line_of(fault.offset), fault) for fault in found.faults]
    return replace(node, value=found.text)
