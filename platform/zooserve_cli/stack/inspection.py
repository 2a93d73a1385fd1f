"""One pass over a stack: read it, run every rule for each profile, sort what they found."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from zooserve_cli.stack import (
    addresses,
    commands,
    configurations,
    dashboards,
    data,
    declarations,
    environment,
    files,
    gpus,
    granted,
    hardening,
    images,
    models,
    order,
    ports,
    programs,
    prometheus,
    reading,
    telemetry,
    variables,
)
from zooserve_cli.stack.report import StackReport
from zooserve_cli.stack.stack import Stack
from zooserve_ensembles.checking.findings import Finding, Place, Rule

__all__ = ["ALL_RULES", "GROUPS", "check_stack"]

Check = Callable[[Stack], Iterator[Finding]]

GROUPS: tuple[tuple[str, tuple[Rule, ...], Check], ...] = (
    ("The compose file itself", reading.RULES, reading.reading_findings),
    ("Variables", variables.RULES, variables.variable_findings),
    ("Images", images.RULES, images.image_findings),
    ("Names", declarations.RULES, declarations.declaration_findings),
    ("Files", files.RULES, files.file_findings),
    ("Paths in containers", granted.RULES, granted.grant_findings),
    ("Data", data.RULES, data.data_findings),
    ("Environment", environment.RULES, environment.environment_findings),
    ("Programs", programs.RULES, programs.program_findings),
    ("Command lines", commands.RULES, commands.command_findings),
    ("Models", models.RULES, models.model_findings),
    ("Configurations", configurations.RULES, configurations.configuration_findings),
    ("Published ports", ports.RULES, ports.port_findings),
    ("Addresses", addresses.RULES, addresses.address_findings),
    ("Start and health", order.RULES, order.order_findings),
    ("Hardening", hardening.RULES, hardening.hardening_findings),
    ("Prometheus", prometheus.RULES, prometheus.prometheus_findings),
    ("Grafana", dashboards.RULES, dashboards.dashboard_findings),
    ("Configurations of foreign programs", telemetry.RULES, telemetry.telemetry_findings),
    ("GPUs", gpus.RULES, gpus.gpu_findings),
)
"""What the rules are about, the rules, and who finds their faults."""

ALL_RULES: tuple[Rule, ...] = tuple(rule for _, rules, _ in GROUPS for rule in rules)
"""Every rule, in the order of the documentation."""


def check_stack(
    file: Path,
    env_file: Path | None = None,
    example: Path | None = None,
    profiles: Sequence[str] = (),
    overrides: Sequence[Path] = (),
) -> StackReport:
    """What is wrong with a compose file, `overrides` laid over it, by file and line.

    `env_file` gives the variables, `example` says which there are. Named profiles, or those that
    somebody's own env file chooses, are looked at together, as Compose starts them; without any, each that the file
    declares is looked at by itself.
    """
    stack, found = reading.read_stack((file, *overrides), env_file, example)
    told = str(env_file) if env_file else "no env file"
    if stack is None:
        return StackReport(str(file), told, 0, tuple(profiles), tuple(found))
    chosen = tuple(profiles) or stack.chosen_profiles
    alone: list[frozenset[str]] = [frozenset({name}) for name in stack.declared_profiles]
    for view in [frozenset(chosen)] if chosen else alone or [frozenset()]:
        found += _findings(replace(stack, profiles=view))
    found += _unknown_profiles(stack, profiles)
    distinct = sorted(set(found), key=lambda finding: (finding.place, finding.rule, finding.message))
    return StackReport(str(file), told, len(stack.everything), chosen or stack.declared_profiles, tuple(distinct))


def _findings(stack: Stack) -> Iterator[Finding]:
    for _, _, check in GROUPS:
        yield from check(stack)


def _unknown_profiles(stack: Stack, profiles: Sequence[str]) -> Iterator[Finding]:
    for name in profiles:
        if name not in stack.declared_profiles and name != "*":
            known = ", ".join(stack.declared_profiles) or "none"
            yield variables.PROFILE.at(Place(stack.file), f"no service has the profile {name}; there are: {known}")
