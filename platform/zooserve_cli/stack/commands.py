"""Rules of command lines: each flag is one that its program has, ours held against the real command."""

import re
import typing
from collections.abc import Iterator
from difflib import get_close_matches
from enum import Enum
from typing import Any, NoReturn

from zooserve_cli.stack.invocation import HEALTH, OURS, Invocation, invocations, started
from zooserve_cli.stack.recorded import Program
from zooserve_cli.stack.service import Service, Word
from zooserve_cli.stack.stack import Stack
from zooserve_ensembles.checking.findings import Finding, Rule, Severity
from zooserve_ensembles.checking.reading import did_you_mean

__all__ = ["RULES", "command_findings"]

FLAG = Rule("unknown-flag", Severity.ERROR, "A program has no such flag")
VALUE = Rule("flag-value", Severity.ERROR, "A flag lacks its value, or has one that its program does not take")
COMMAND = Rule(
    "unknown-command", Severity.ERROR, "Our command has no such subcommand, or is given a word too many or too few"
)
PATH = Rule(
    "path-not-mounted", Severity.ERROR, "A flag names a folder or file of the container that is not mounted there"
)

RULES = (FLAG, VALUE, COMMAND, PATH)

_PATHS = ("--model-repository", "--model-store")
_HELP = ("-h", "--help")
"""argparse prints it at once, and ends the process."""


def command_findings(stack: Stack) -> Iterator[Finding]:
    """Every word of every known program, of health checks, too."""
    for service in stack.services.values():
        main = invocations(stack, service)
        test = service.health_test
        checks = started(test if test[:1] and test[0].text == "CMD-SHELL" else test[1:], stack, service) if test else ()
        for call in (*main, *checks):
            if call.program == OURS:
                yield from _ours(call)
            elif call.program == HEALTH:
                yield from _health(call)
            else:
                yield from _foreign(call, stack.programs[call.program])
        for call in main:
            yield from _paths(stack, service, call)


def _foreign(call: Invocation, program: Program) -> Iterator[Finding]:
    yield from _given_values(call, program)
    for flag in program.required if call.words else ():
        if not any(word.text.partition("=")[0] in (*flag.split("|"), "--help") for word in call.words):
            yield VALUE.at(call.place, f"{program.program} does not start without {flag.partition('|')[0]}: give it")
    if program.flags is None:
        return
    known = {*program.flags, *(f"-{flag}" for flag in program.flags if re.match(r"-[^-].", flag))}
    for word in call.words:
        name = word.text.partition("=")[0]
        if not re.match(r"--?[A-Za-z]", name) or "$" in name or _is_known(name, known):
            continue
        near = did_you_mean(name, sorted(known))
        yield FLAG.at(word.place, f"{program.program} {program.release} has no {name}. {near}".strip())


def _given_values(call: Invocation, program: Program) -> Iterator[Finding]:
    """What the flags whose values were recorded are given."""
    for index, word in enumerate(call.words):
        name, equals, value = word.text.partition("=")
        pattern, some = program.values.get(name), program.slips.get(name, ())
        following = call.words[index + 1].text if index + 1 < len(call.words) else ""
        given = value if equals else following
        for part in given.split(",") if some else ():
            if part not in some and (near := get_close_matches(part, some, 1, 0.85)):
                yield VALUE.at(word.place, f"{name} would pass over {part}. Did you mean {near[0]}?")
        if pattern is not None and "$" not in given and not re.fullmatch(pattern, given):
            yield VALUE.at(word.place, f"{name} cannot be {given or 'nothing'}: write {_told(pattern, program)}")


def _told(pattern: str, program: Program) -> str:
    """What a pattern takes, in words."""
    if pattern == r"\d+":
        return "a whole number"
    if re.fullmatch(r"[\w|]+", pattern):
        return "one of " + ", ".join(pattern.split("|"))
    return "true or false" if pattern.startswith("(?i:true|") else f"it as {program.program} --help says"


def _is_known(name: str, known: set[str]) -> bool:
    return name in known or any(
        "*" in flag and re.fullmatch(re.escape(flag).replace(r"\*", ".+"), name) for flag in known
    )


def _paths(stack: Stack, service: Service, call: Invocation) -> Iterator[Finding]:
    for flag in _PATHS:
        word = call.flag(flag)
        if word is None or not word.text.startswith("/") or "$" in word.text:
            continue
        mount = service.at_path(word.text)
        host = stack.on_host(service, word.text)
        if mount is None or (host is not None and not host.exists()):
            yield PATH.at(word.place, f"{service.name} has no {word.text}: mount it there")
        elif host is not None and not any(host.glob("*/config.pbtxt")):
            yield PATH.at(word.place, f"{host} holds no model: give the folder that has one of each model's name")


def _ours(call: Invocation) -> Iterator[Finding]:
    """Our own words, parsed by the command's own parser; nothing of it is run."""
    from typer.main import get_command

    from zooserve_cli.main import app

    command: Any = get_command(app)
    words = list(call.words)
    while hasattr(command, "commands") and words and not words[0].text.startswith("-"):
        inner = command.commands.get(words[0].text)
        if inner is None:
            near = did_you_mean(words[0].text, sorted(command.commands))
            yield COMMAND.at(words[0].place, f"{OURS} has no command {words[0].text}. {near}".strip())
            return
        command, words = inner, words[1:]
    if hasattr(command, "commands"):
        known = ", ".join(sorted(command.commands))
        yield COMMAND.at(words[0].place if words else call.place, f"say which command of {OURS}: {known}")
        return
    yield from _parsed(command, words, call)


def _health(call: Invocation) -> Iterator[Finding]:
    """The words of our health check, parsed by its own parser."""
    from zooserve.health import parser

    def refuse(message: str) -> NoReturn:
        raise ValueError(message)

    own = parser()
    own.error = refuse  # type: ignore[method-assign]
    try:
        own.parse_args([word.text for word in call.words if word.text not in _HELP])
    except ValueError as exc:
        message = str(exc)
        named = (word for word in call.words if word.text in message or word.text.partition("=")[0] in message)
        place = next(named, Word("", call.place)).place
        rule = FLAG if "unrecognized" in message else VALUE
        yield rule.at(place, f"{HEALTH}: {message}")


def _parsed(command: Any, words: list[Word], call: Invocation) -> Iterator[Finding]:
    from typer.exceptions import TyperException

    options = {
        name: option for option in command.params for name in (*option.opts, *option.secondary_opts) if name[:1] == "-"
    }
    unknown = False
    for word in words:
        name = word.text.partition("=")[0]
        if name.startswith("-") and name not in (*options, "--", "--help") and not re.fullmatch(r"-\d.*", name):
            unknown = True
            near = did_you_mean(name, sorted(options))
            yield FLAG.at(word.place, f"{OURS} {command.name} has no {name}. {near}".strip())
    if unknown:
        return
    place = words[-1].place if words else call.place
    try:
        context = command.context_class(command, info_name=command.name)
        values, left, _ = command.make_parser(context).parse_args([word.text for word in words])
    except TyperException as exc:
        yield VALUE.at(place, str(exc))
        return
    if left:
        yield COMMAND.at(place, f"{OURS} {command.name} takes no {left[0]}: remove it")
    for param in command.params:
        value = values.get(param.name)
        known = _choices(param)
        if param.required and value in (None, ()):
            yield COMMAND.at(place, f"{OURS} {command.name} needs {param.name.upper()}")
        elif known and isinstance(value, str) and value not in known:
            at = next((word.place for word in words if word.text.endswith(value)), place)
            yield VALUE.at(at, f"{value} is none of: {', '.join(known)}. {did_you_mean(value, known)}".strip())


def _choices(param: Any) -> list[str]:
    """The words that a parameter takes; none where it takes any."""
    kind = getattr(getattr(param, "type_descriptor", None), "annotation", None)
    if typing.get_origin(kind) is typing.Literal:
        return [str(word) for word in typing.get_args(kind)]
    return [str(member.value) for member in kind] if isinstance(kind, type) and issubclass(kind, Enum) else []
