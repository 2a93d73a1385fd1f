"""Rules of start and health: who waits for whom can, and health is asked for by something that proves it."""

from collections.abc import Iterator

from zooserve_cli.stack.invocation import container_file
from zooserve_cli.stack.service import Need, Service
from zooserve_cli.stack.stack import Stack
from zooserve_ensembles.checking.findings import Finding, Rule, Severity
from zooserve_ensembles.checking.reading import did_you_mean

__all__ = ["RULES", "order_findings"]

UNKNOWN = Rule("unknown-need", Severity.ERROR, "depends_on names no service, or a condition that Compose does not know")
PROFILE = Rule(
    "need-not-started",
    Severity.ERROR,
    "depends_on names a service that the profile does not start: Compose refuses the file",
)
CIRCLE = Rule("need-circle", Severity.ERROR, "Services wait for each other")
HEALTH = Rule("no-healthcheck", Severity.ERROR, "service_healthy waits for a service that has no health check")
ENDLESS = Rule(
    "never-completes",
    Severity.ERROR,
    "service_completed_successfully waits for a service that is started again and again",
)
READINESS = Rule(
    "triton-readiness", Severity.ERROR, "A health check asks Triton whether it is live or ready: a wedged one says yes"
)

RULES = (UNKNOWN, PROFILE, CIRCLE, HEALTH, ENDLESS, READINESS)

_CONDITIONS = ("service_started", "service_healthy", "service_completed_successfully")


def order_findings(stack: Stack) -> Iterator[Finding]:
    """Every need of every service of the profile, and every health check."""
    for service in stack.services.values():
        for need in service.needs:
            yield from _need(stack, service, need)
        yield from _circle(stack, service)
        for word in service.health_test:
            if "/v2/health/" in word.text or word.text.endswith("/v2/health"):
                yield READINESS.at(
                    word.line_of(word.text.index("/v2/health")),
                    "Triton's own readiness is no evidence: let the check do one real inference",
                )


def _need(stack: Stack, service: Service, need: Need) -> Iterator[Finding]:
    other = stack.everything.get(need.service)
    if need.condition not in _CONDITIONS:
        near = did_you_mean(need.condition, _CONDITIONS)
        yield UNKNOWN.at(need.place, f"there is no condition {need.condition}. {near}".strip())
    if other is None:
        near = did_you_mean(need.service, sorted(stack.everything))
        yield UNKNOWN.at(need.place, f"there is no service {need.service}. {near}".strip())
        return
    if not stack.is_active(other):
        if need.is_required:
            profiles = ", ".join(sorted(other.profiles))
            yield PROFILE.at(
                need.place,
                f"{service.name} waits for {need.service}, which only {profiles} starts: add required: false",
            )
        return
    if need.condition == "service_healthy" and not other.health_test and not _built_with_check(stack, other):
        yield HEALTH.at(need.place, f"{need.service} has no healthcheck: give it one, or wait for service_started")
    restart = other.node["restart"].text
    if need.condition == "service_completed_successfully" and restart in ("always", "unless-stopped"):
        yield ENDLESS.at(need.place, f"{need.service} has restart: {restart}: set it to on-failure")


def _built_with_check(stack: Stack, service: Service) -> bool:
    built = container_file(stack, service)
    return built is not None and built.has_health_check and not service.node["healthcheck"]["disable"].is_true


def _circle(stack: Stack, service: Service) -> Iterator[Finding]:
    path = [service.name]
    seen = {service.name}
    waiting = [(need, [service.name]) for need in service.needs]
    while waiting:
        need, path = waiting.pop()
        if need.service == service.name:
            if service.name == min(path):  # told once, not by each of the circle
                yield CIRCLE.at(need.place, f"{' waits for '.join([*path, service.name])}: nothing would start")
            return
        if need.service not in seen and need.service in stack.services:
            seen.add(need.service)
            waiting += [(inner, [*path, need.service]) for inner in stack.services[need.service].needs]
