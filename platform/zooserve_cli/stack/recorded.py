"""What was recorded of programs that come in containers of others: flags, environment, ports, keys. See `recorded/`."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

__all__ = ["Configuration", "Data", "Environment", "ListeningPort", "Program", "recorded_programs"]

_RECORDS = Path(__file__).parent / "recorded"
Text = Annotated[str, StringConstraints(min_length=1)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ListeningPort(_Record):
    """A port that a program listens on, and what moves it."""

    port: Annotated[int, Field(ge=1, le=65535)]
    flag: str | None = None
    env: str | None = None
    config: str | None = None
    """Dotted keys of its configuration file."""
    host_flag: str | None = None
    host_env: str | None = None
    """What says on which address it listens, where that is apart from the port; all of them otherwise."""
    speaks: frozenset[str] = frozenset()
    """Of http, grpc and metrics; empty where it was not recorded."""
    is_off_without: bool = False
    """Whether it is closed where the configuration does not have the part that `config` leads into."""


class Data(_Record):
    """A folder that a program writes into, and what moves it. One without a path is where it is told."""

    path: str = ""
    flag: str | None = None
    env: str | None = None
    config: str | None = None


class Environment(_Record):
    """The variables that a program reads: of those with its prefix, no others."""

    prefix: str
    names: tuple[str, ...]

    def knows(self, name: str) -> bool:
        """Whether it reads the variable, or the file that a variable with `__FILE` behind its name leads to."""
        return any(fnmatchcase(name.removesuffix("__FILE"), pattern) for pattern in self.names)


class Configuration(_Record):
    """A program's configuration file."""

    flag: str | None = None
    default: str | None = None
    listens: str | None = None
    """Whether every endpoint in it is listened on, too."""


class Program(_Record):
    """One program at one release, with where it was read and how to renew it."""

    program: Text
    release: Text
    images: tuple[str, ...]
    source: Text | tuple[Text, ...]
    renew: Text
    tags: tuple[str, ...] = ()
    """Other tags of the same release."""
    names: tuple[str, ...] = ()
    subcommands: tuple[str, ...] = ()
    """Words before the flags that choose what it does, as `serve`."""
    ports: tuple[ListeningPort, ...] = ()
    pages: tuple[str, ...] = ()
    """Some of the paths that it answers over HTTP."""
    data: tuple[Data, ...] = ()
    flags: tuple[str, ...] | None = None
    values: Mapping[str, str] = Field(default_factory=dict)
    """Patterns of what some flags take."""
    required: tuple[str, ...] = ()
    """Flags without which it does not start; `a|b`: one of the two."""
    slips: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    """Some of the values of a flag that passes over what it does not know."""
    env: Environment | None = None
    config: Configuration | None = None

    @property
    def executables(self) -> frozenset[str]:
        """The names by which a command line starts it."""
        return frozenset(PurePosixPath(name).name for name in (self.program, *self.names))


@cache  # part of the package: it does not change while a process runs
def recorded_programs() -> Mapping[str, Program]:
    """Every recorded program by its name."""
    return {program.program: program for program in _read()}


def _read() -> Iterator[Program]:
    from ruamel.yaml import YAML

    for path in sorted(_RECORDS.glob("*.yaml")):
        document = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
        if isinstance(document, dict) and {"program", "images"} <= set(document):
            yield Program.model_validate(document)
