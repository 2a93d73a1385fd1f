"""Rules of what is started: words that are all but a program, a module or a script, which nothing would be known of."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import PurePosixPath

from zooserve_cli.stack.invocation import HEALTH, OURS, image_program, script_of, unwrapped
from zooserve_cli.stack.service import Service, Word
from zooserve_cli.stack.stack import Stack
from zooserve_ensembles.checking.findings import Finding, Rule, Severity
from zooserve_ensembles.checking.reading import did_you_mean

__all__ = ["RULES", "program_findings"]

PROGRAM = Rule(
    "unknown-program",
    Severity.ERROR,
    "What is started is all but a program or module that is known, or a missing script",
)
TEST = Rule(
    "health-form",
    Severity.ERROR,
    "A health check is a list that begins with neither CMD, CMD-SHELL nor NONE, or names no program",
)

RULES = (PROGRAM, TEST)

_USUAL = ("python", "python3", "bash", "curl", "wget", "promtool")
_PROMTOOL = ("check", "config", "healthy", "metrics", "query", "ready", "rules", "service-discovery", "web-config")
_SUBCOMMANDS = ("fetch", "route", "triton", "up")
_LONG = 6
"""Letters from which a name is not another program's by chance."""
_OURS = (OURS, "zooserve_cli", "zooserve_ensembles")


def program_findings(stack: Stack) -> Iterator[Finding]:
    """Every entrypoint, command and health check."""
    for service in stack.services.values():
        yield from _started(stack, service, (*service.entrypoint, *service.command))
        test = service.health_test
        if service.node["healthcheck"]["test"].is_list and test and test[0].text not in ("CMD", "CMD-SHELL"):
            yield TEST.at(test[0].place, f"{test[0].text} begins the health check of {service.name}: begin it with CMD")
        elif len(test) > 1 and test[0].text == "CMD" and test[1].text.startswith("-"):
            yield TEST.at(
                test[1].place, f"the health check of {service.name} begins with {test[1].text}: name a program"
            )
        elif test and test[0].text == "CMD":
            yield from _started(stack, service, test[1:])


def _started(stack: Stack, service: Service, words: tuple[Word, ...]) -> Iterator[Finding]:
    words = unwrapped(words)
    if not words or words[0].text.startswith("-"):
        return
    head = PurePosixPath(words[0].text).name
    if words[0].text in _SUBCOMMANDS and OURS in service.image:
        yield PROGRAM.at(words[0].place, f"{service.name} starts {head}, a command of {OURS}: begin with {OURS}")
    image = image_program(stack, service)
    if service.entrypoint[:1] == words[:1] and image is not None and head in image.subcommands:
        yield PROGRAM.at(words[0].place, f"{service.name} starts {head}: begin with {image.program}")
    if near := _all_but(head, _expected(stack, service)):
        yield PROGRAM.at(words[0].place, f"{service.name} starts {head}. Did you mean {near}?")
    if head.startswith("python") and len(words) > 2 and words[1].text == "-m":
        yield from _module(service, words[2])
    for word in words[1:3] if head == "promtool" else ():
        if not word.text.startswith("-") and (near := _all_but(word.text, list(_PROMTOOL))):
            yield PROGRAM.at(word.place, f"promtool has no command {word.text}. Did you mean {near}?")
    script = script_of(words, stack, service)
    if script is not None and not script.is_file():
        yield PROGRAM.at(words[0].place, f"{service.name} starts {script}, which is not there")
    program = stack.programs.get(head)
    if program is not None and program.subcommands and len(words) > 1 and not words[1].text.startswith("-"):
        yield from _subcommand(words[1], head, program.subcommands)


def _expected(stack: Stack, service: Service) -> list[str]:
    """Names that a service may well start: the usual ones, its image's, and of one that is built here any long one."""
    image = image_program(stack, service)
    own = image.executables if image is not None else frozenset()
    if service.node["build"].is_there:
        own |= {one for program in stack.programs.values() for one in program.executables if len(one) >= _LONG}
    return sorted({OURS, *_USUAL, *(name for name in own if "." not in name)})


def _subcommand(word: Word, head: str, known: tuple[str, ...]) -> Iterator[Finding]:
    if word.text not in known and "$" not in word.text:
        yield PROGRAM.at(word.place, f"{head} has no command {word.text}. {did_you_mean(word.text, known)}".strip())


def _module(service: Service, word: Word) -> Iterator[Finding]:
    package = word.text.partition(".")[0]
    if package in _OURS:
        if not _is_module(word.text):
            near = _all_but(word.text, [HEALTH]) or "one that zooserve has"
            yield PROGRAM.at(word.place, f"{service.name} starts the module {word.text}. Did you mean {near}?")
    elif near := _all_but(package, list(_OURS)):
        yield PROGRAM.at(word.place, f"{service.name} starts the module {word.text}. Did you mean {near}?")


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _all_but(name: str, known: list[str]) -> str:
    """The known name that this one nearly is; none where it is one, or one with a version or an ending behind it."""
    if any(re.fullmatch(rf"{re.escape(one)}([-._\d].*)?", name) for one in known):
        return ""
    return next(iter(get_close_matches(name, known, 1, 0.8)), "")
