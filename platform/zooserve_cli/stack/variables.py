"""Rules of variables: the compose file's, those that `.env.example` explains, and those that the user's `.env` sets."""

from collections.abc import Iterator

from zooserve_cli.stack.gpu_shares import CARD_VARIABLE, WEIGHTS_VARIABLE, WORKSPACE_VARIABLE
from zooserve_cli.stack.stack import Placed, Stack
from zooserve_ensembles.checking.findings import Finding, Rule, Severity
from zooserve_ensembles.checking.reading import did_you_mean

__all__ = ["RULES", "variable_findings"]

LINE = Rule("env-line", Severity.ERROR, "A line of an env file sets nothing")
TWICE = Rule("variable-twice", Severity.WARNING, "An env file sets a variable twice: the first one is ignored")
UNDOCUMENTED = Rule(
    "variable-undocumented", Severity.ERROR, "The compose file reads a variable that .env.example does not have"
)
UNEXPLAINED = Rule("variable-unexplained", Severity.ERROR, "A variable of .env.example has no comment above it")
UNUSED = Rule("variable-unused", Severity.ERROR, "A variable of .env.example is read by nothing")
UNKNOWN = Rule(
    "variable-unknown",
    Severity.ERROR,
    "The env file sets a variable that nothing reads: misspelt, or of an older release",
)
MISSING = Rule("variable-missing", Severity.ERROR, "A variable is not set, and the compose file has no default for it")
EMPTY = Rule("variable-empty", Severity.ERROR, "A variable is set to nothing, and the compose file does not foresee it")
PROFILE = Rule("unknown-profile", Severity.ERROR, "No service has the profile that is chosen")

RULES = (LINE, TWICE, UNDOCUMENTED, UNEXPLAINED, UNUSED, UNKNOWN, MISSING, EMPTY, PROFILE)

_SUMMED_UP = {CARD_VARIABLE, WEIGHTS_VARIABLE, WORKSPACE_VARIABLE}
"""What no service reads, but the sum of the shares on one card."""
_COMPOSES_OWN = frozenset(
    {
        "COMPOSE_ANSI",
        "COMPOSE_BAKE",
        "COMPOSE_CONVERT_WINDOWS_PATHS",
        "COMPOSE_DISABLE_ENV_FILE",
        "COMPOSE_ENV_FILES",
        "COMPOSE_EXPERIMENTAL",
        "COMPOSE_FILE",
        "COMPOSE_HTTP_TIMEOUT",
        "COMPOSE_IGNORE_ORPHANS",
        "COMPOSE_MENU",
        "COMPOSE_PARALLEL_LIMIT",
        "COMPOSE_PATH_SEPARATOR",
        "COMPOSE_PROFILES",
        "COMPOSE_PROGRESS",
        "COMPOSE_PROJECT_NAME",
        "COMPOSE_REMOVE_ORPHANS",
        "COMPOSE_STATUS_STDOUT",
    }
)
_DOCKERS = "DOCKER_"


def variable_findings(stack: Stack) -> Iterator[Finding]:
    """Every variable, from where it is read to where it is set."""
    read = {placed.use.name for placed in stack.uses} | _handed_on(stack) | _SUMMED_UP | _COMPOSES_OWN
    yield from _lines(stack)
    yield from _example(stack, read)
    if stack.is_set_up:
        yield from _unknown(stack, read)
    for placed in stack.uses:
        yield from _set(stack, placed)
    yield from _profiles(stack)


def _is_composes(name: str) -> bool:
    return name in _COMPOSES_OWN or name.startswith(_DOCKERS)


def _handed_on(stack: Stack) -> set[str]:
    """Variables that a container gets under their own name, and those that are secrets."""
    named = {
        name for service in stack.everything.values() for name, node in service.environment.items() if not node.is_there
    }
    return named | {node["environment"].text for node in stack.root["secrets"].entries.values()} - {""}


def _lines(stack: Stack) -> Iterator[Finding]:
    for env in (stack.env, stack.example):
        for place, why in env.unreadable if env else ():
            yield LINE.at(place, f"{why}: write NAME=value, or a comment that begins with #")
        for variable in env.repeated if env else ():
            yield TWICE.at(variable.place, f"{variable.name} is set again below: remove one of the two")


def _example(stack: Stack, read: set[str]) -> Iterator[Finding]:
    if stack.example is None:
        return
    explained = stack.example.variables
    for placed in stack.uses:
        if placed.use.name not in explained:
            near = did_you_mean(placed.use.name, sorted(explained))
            yield UNDOCUMENTED.at(
                placed.place, f"{placed.use.name} is not in {stack.example.file.name}: explain it there. {near}".strip()
            )
    for variable in explained.values():
        if not variable.comment:
            yield UNEXPLAINED.at(variable.place, f"say in a comment above what {variable.name} is for")
        if variable.name not in read and not _is_composes(variable.name):
            near = did_you_mean(variable.name, sorted(read))
            yield UNUSED.at(variable.place, f"nothing reads {variable.name}: remove it. {near}".strip())


def _unknown(stack: Stack, read: set[str]) -> Iterator[Finding]:
    known = sorted(read | set(stack.example.variables if stack.example else ()))
    for variable in stack.env.variables.values():
        if variable.name not in known and not _is_composes(variable.name):
            near = did_you_mean(variable.name, known) or "Remove it."
            yield UNKNOWN.at(variable.place, f"nothing reads {variable.name}. {near}")


def _set(stack: Stack, placed: Placed) -> Iterator[Finding]:
    use = placed.use
    variable = stack.env.variables.get(use.name)
    if variable is None and not use.may_be_missing:
        why = f" ({use.argument})" if use.argument and use.operator in (":?", "?") else ""
        yield MISSING.at(placed.place, f"set {use.name} in {stack.env.file}{why}")
    elif variable is not None and not variable.value and not use.may_be_empty:
        yield EMPTY.at(variable.place, f"{use.name} is empty: give it a value")


def _profiles(stack: Stack) -> Iterator[Finding]:
    chosen = stack.env.variables.get("COMPOSE_PROFILES")
    for name in chosen.value.split(",") if chosen else ():
        if name.strip() and name.strip() != "*" and name.strip() not in stack.declared_profiles and chosen:
            near = did_you_mean(name.strip(), stack.declared_profiles)
            yield PROFILE.at(chosen.place, f"no service has the profile {name.strip()}. {near}".strip())
