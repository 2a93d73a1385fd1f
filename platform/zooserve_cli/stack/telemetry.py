"""The configurations of foreign programs, each held by its own module to what was recorded of it."""

from collections.abc import Callable, Iterator
from pathlib import Path

from zooserve_cli.stack import collector, grafana, prometheus, tempo
from zooserve_cli.stack.invocation import image_program, invocations
from zooserve_cli.stack.listening import configured_path
from zooserve_cli.stack.service import Service
from zooserve_cli.stack.stack import Stack
from zooserve_ensembles.checking.findings import Finding

__all__ = ["RULES", "telemetry_findings"]

RULES = tuple(dict.fromkeys((*collector.RULES, *tempo.RULES, *grafana.RULES)))

_CHECKS: dict[str, Callable[[str, Path], Iterator[Finding]]] = {
    "otelcol-contrib": collector.collector_findings,
    "prometheus": prometheus.configuration_findings,
    "tempo": tempo.tempo_findings,
}
_PROVISIONING = ("/etc/grafana/provisioning/datasources", "/etc/grafana/provisioning/dashboards")


def telemetry_findings(stack: Stack) -> Iterator[Finding]:
    """Each configuration that one of them reads and that is a file of the host."""
    for service in stack.services.values():
        for call in invocations(stack, service):
            if (check := _CHECKS.get(call.program)) is not None:
                path = configured_path(stack.programs[call.program], call)
                yield from _checked(check, stack.on_host(service, path) if path else None)
        program = image_program(stack, service)
        if program is not None and program.program == "grafana":
            for file in _provisioned(stack, service):
                yield from _checked(grafana.provisioning_findings, file)


def _provisioned(stack: Stack, service: Service) -> Iterator[Path]:
    for folder in _PROVISIONING:
        host = stack.on_host(service, folder)
        try:
            yield from sorted(host.glob("*.y*ml")) if host is not None and host.is_dir() else ()
        except (OSError, ValueError):
            continue


def _checked(check: Callable[[str, Path], Iterator[Finding]], file: Path | None) -> Iterator[Finding]:
    try:
        text = file.read_text(encoding="utf-8", errors="replace") if file is not None and file.is_file() else None
    except OSError:
        text = None
    if text is not None and file is not None:
        yield from check(text, file)
