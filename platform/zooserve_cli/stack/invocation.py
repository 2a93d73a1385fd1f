"""Which programs a service starts, with which words: from its command, its image, or a script that it runs."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from zooserve_cli.stack.container_file import ContainerFile, read_container_file
from zooserve_cli.stack.recorded import Program
from zooserve_cli.stack.service import Service, Word
from zooserve_cli.stack.stack import Stack
from zooserve_ensembles.checking.findings import Place

__all__ = [
    "HEALTH",
    "OURS",
    "Invocation",
    "container_file",
    "image_program",
    "invocations",
    "repository_of",
    "script_of",
    "started",
    "unwrapped",
]

OURS = "zooserve"
HEALTH = "zooserve.health"
_SHELLS = frozenset({"sh", "bash", "dash", "ash"})
_WRAPPERS = frozenset(
    {
        "exec",
        "tini",
        "dumb-init",
        "env",
        "nvidia_entrypoint.sh",
        "docker-entrypoint.sh",
        "trtllm-llmapi-launch",
        "--",
        "-s",
        "-g",
    }
)
_ASSIGNED = re.compile(r"^[A-Za-z_]\w*=")
_ENDS = frozenset({"&&", "||", ";", "|", "&", "then", "do", "else", "{", "(", "if", "!"})


@dataclass(frozen=True)
class Invocation:
    """One program and the words after its name."""

    program: str
    """Its name: ours, or a recorded one."""
    words: tuple[Word, ...]
    place: Place

    @property
    def subcommand(self) -> tuple[str, ...]:
        """The words before the first flag."""
        texts = [word.text for word in self.words]
        first = next((index for index, text in enumerate(texts) if text.startswith("-")), len(texts))
        return tuple(texts[:first])

    def flag(self, name: str) -> Word | None:
        """The value that a flag is given last, as `--flag=value` or `--flag value`."""
        value = None
        for index, word in enumerate(self.words):
            before, equals, after = word.text.partition("=")
            if before != name:
                continue
            if equals:
                value = replace(word, text=after)
            elif index + 1 < len(self.words):
                value = self.words[index + 1]
        return value


def invocations(stack: Stack, service: Service) -> tuple[Invocation, ...]:
    """The known programs that the service's main process starts."""
    words = (*service.entrypoint, *service.command)
    built = container_file(stack, service)
    if built is not None:
        if not service.entrypoint:
            words = (*built.entrypoint, *(service.command or built.command))
        elif not service.command and not service.node["entrypoint"].is_there:
            words = (*words, *built.command)
    if found := tuple(started(words, stack, service)):
        return found
    program = image_program(stack, service)
    if program is None or built is not None:
        return ()
    place = service.node["image"].place
    return (Invocation(program.program, () if service.entrypoint else _after_name(words, program), place),)


def started(words: tuple[Word, ...], stack: Stack, service: Service | None = None) -> Iterator[Invocation]:
    """The known programs in a command line; a shell's script is read, too."""
    names = _names(stack.programs)
    words = unwrapped(words)
    if not words:
        return
    head = PurePosixPath(words[0].text).name
    if head in names:
        yield Invocation(names[head], words[1:], words[0].place)
    elif head.startswith("python") and [word.text for word in words[1:3]] == ["-m", "zooserve_cli"]:
        yield Invocation(OURS, words[3:], words[0].place)
    elif head.startswith("python") and [word.text for word in words[1:3]] == ["-m", HEALTH]:
        yield Invocation(HEALTH, words[3:], words[0].place)
    elif head in _SHELLS or head == "CMD-SHELL":
        yield from _from_shell(words[1:], names, stack, service, is_text=head == "CMD-SHELL")


def image_program(stack: Stack, service: Service) -> Program | None:
    """The recorded program of the service's image."""
    repository = repository_of(service.image)
    for program in stack.programs.values():
        if any(repository == image or repository.endswith(f"/{image}") for image in program.images):
            return program
    return None


def repository_of(image: str) -> str:
    """An image's name without tag and digest."""
    name = image.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


def container_file(stack: Stack, service: Service) -> ContainerFile | None:
    """The container file that the service is built from, if it is there."""
    build = service.node["build"]
    if not build.is_there:
        return None
    context = stack.path(build["context"].text or build.text or ".")
    return read_container_file(context / (build["dockerfile"].text or "Dockerfile"))


def _names(programs: Mapping[str, Program]) -> dict[str, str]:
    names = {executable: program.program for program in programs.values() for executable in program.executables}
    return {**names, OURS: OURS}


def _after_name(words: tuple[Word, ...], program: Program) -> tuple[Word, ...]:
    named = words and PurePosixPath(words[0].text).name in program.executables
    return words[1:] if named else words


def unwrapped(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """The words without those that only start the next one."""
    while words and (PurePosixPath(words[0].text).name in _WRAPPERS or _ASSIGNED.match(words[0].text)):
        words = words[1:]
    return words


def _from_shell(
    words: tuple[Word, ...], names: Mapping[str, str], stack: Stack, service: Service | None, *, is_text: bool
) -> Iterator[Invocation]:
    if is_text and words:
        yield from _from_script(words[0], names)
        return
    for index, word in enumerate(words):
        if re.fullmatch(r"-[a-z]*c", word.text):
            if index + 1 < len(words):
                yield from _from_script(words[index + 1], names, stack, service)
            return
        if not word.text.startswith("-"):
            break
    script = script_of((Word("sh", words[0].place), *words), stack, service) if words and service else None
    if script is not None and script.is_file():
        yield from _from_file(script, names)


def script_of(words: tuple[Word, ...], stack: Stack, service: Service) -> Path | None:
    """The file of the host that a shell is to run; None where there is none, or it is in the image."""
    if not words or PurePosixPath(words[0].text).name not in _SHELLS:
        return None
    for word in words[1:]:
        if re.fullmatch(r"-[a-z]*c", word.text):
            return None
        if not word.text.startswith("-"):
            return stack.on_host(service, word.text)
    return None


def _from_file(script: Path, names: Mapping[str, str]) -> Iterator[Invocation]:
    try:
        text = script.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    yield from _from_script(Word(text, Place(script, 1)), names)


def _from_script(
    script: Word, names: Mapping[str, str], stack: Stack | None = None, service: Service | None = None
) -> Iterator[Invocation]:
    """Each known program that begins a simple command of a script, or of one that it starts, if a stack is given.

    The shell's variables stay as they are.
    """
    lines = script.text.split("\n")
    offset = 0
    number = 0
    while number < len(lines):
        at, line = script.line_of(offset), lines[number]
        offset += len(line) + 1
        while line.rstrip().endswith("\\") and number + 1 < len(lines):
            number += 1
            line = f"{line.rstrip()[:-1]} {lines[number]}"
            offset += len(lines[number]) + 1
        number += 1
        for words in _simple_commands(line, at):
            if words and (head := PurePosixPath(words[0].text).name) in names:
                yield Invocation(names[head], words[1:], at)
            elif stack is not None and service is not None:
                other = script_of(words, stack, service)
                if other is not None and other.is_file():
                    yield from _from_file(other, names)


def _simple_commands(line: str, place: Place) -> Iterator[tuple[Word, ...]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split = True
    try:
        parts = list(lexer)
    except ValueError:  # a quote that goes on over lines
        parts = []
    command: list[Word] = []
    for part in [*parts, ";"]:
        if part in _ENDS or set(part) <= set(";&|()"):
            yield unwrapped(tuple(command))
            command = []
        else:
            command.append(Word(part, place))
