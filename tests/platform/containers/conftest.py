"""Container files, read as a builder reads them: stages of instructions, with what was given to ARG put in."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from docker.utils.build import exclude_paths

ROOT = Path(__file__).parents[3]
FILES = ("router/Dockerfile", "ensembles/Dockerfile", "model_repository/trtllm/Dockerfile")


@dataclass(frozen=True)
class Instruction:
    """One instruction, its continued lines joined."""

    word: str
    rest: str


@dataclass(frozen=True)
class Stage:
    """What follows one FROM."""

    base: str
    name: str
    instructions: tuple[Instruction, ...]

    def all(self, word: str) -> tuple[str, ...]:
        """What follows this word, wherever it stands."""
        return tuple(instruction.rest for instruction in self.instructions if instruction.word == word)


@dataclass(frozen=True)
class ContainerFile:
    """One container file; `arguments` are its ARGs with their defaults."""

    path: Path
    arguments: Mapping[str, str]
    stages: tuple[Stage, ...]


def read(path: Path) -> ContainerFile:
    """The file's stages, with the defaults of its arguments in place of their names."""
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    for instruction in _instructions(path.read_text()):
        if instruction.word == "ARG":
            name, _, default = instruction.rest.partition("=")
            arguments[name] = default
            continue
        rest = re.sub(r"\$\{(\w+)\}", lambda found: arguments.get(found[1], found[0]), instruction.rest)
        if instruction.word == "FROM":
            base, *name = re.split(r"\s+AS\s+", rest)
            stages.append(Stage(base, "".join(name), ()))
        else:
            last = stages.pop()
            stages.append(Stage(last.base, last.name, (*last.instructions, Instruction(instruction.word, rest))))
    return ContainerFile(path, arguments, tuple(stages))


def _instructions(text: str) -> Iterator[Instruction]:
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        word, _, rest = line.partition(" ")
        yield Instruction(word, rest.strip())


@pytest.fixture(params=FILES)
def container_file(request: pytest.FixtureRequest) -> ContainerFile:
    """Each of the container files."""
    return read(ROOT / request.param)


@pytest.fixture(scope="session")
def read_container_file() -> Callable[[str], ContainerFile]:
    """Reads the one of this name."""
    return lambda name: read(ROOT / name)


@pytest.fixture(scope="session")
def context() -> frozenset[str]:
    """The files that are sent to a builder, as Docker's own client reads .dockerignore."""
    patterns = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    sent = exclude_paths(str(ROOT), patterns)
    return frozenset(name for name in sent if (ROOT / name).is_file() and name != ".dockerignore")
