"""Where lines of a log end up: whole ones or none, whoever else writes there and whoever is killed meanwhile."""

import fcntl
import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

__all__ = ["LineStream", "Lines", "RotatedFile"]

_GENERATIONS = 4
_MENDED_BYTES = 1 << 20
"""How far back a torn line is looked for: many times the longest."""


class Lines(Protocol):
    """Takes lines."""

    most_bytes: int
    """What one `append` may bring."""

    def append(self, lines: bytes) -> None:
        """Add these, each with its newline. Raises OSError where none of them is added."""


class RotatedFile:
    """A file that several processes append to, and the three before it, in a bounded number of bytes.

    A lock beside it is held for each append: the kernel may end a write at any page when its process is killed or the
    disk is full, and only who is alone can tell what was left and cut it off.
    """

    most_bytes = 64 * 2**10

    def __init__(self, file: Path, max_bytes: int) -> None:
        self._file = file
        self._lock_file = file.with_name(f".{file.name}.lock")
        self._each_bytes = max_bytes // _GENERATIONS
        self.most_bytes = min(self.most_bytes, self._each_bytes)

    def append(self, lines: bytes) -> None:
        """Add lines; the file is set aside first if it would grow too long."""
        with self._locked():
            if self._mended() + len(lines) > self._each_bytes:
                self._set_aside()
            with _opened(self._file) as descriptor:
                _write(descriptor, lines)

    def _mended(self) -> int:
        """The file's bytes, without the half of a line that a killed process may have left at its end."""
        with _opened(self._file) as descriptor:
            size = os.fstat(descriptor).st_size
            if not size or os.pread(descriptor, 1, size - 1) == b"\n":
                return size
            begin = max(0, size - _MENDED_BYTES)
            whole = begin + os.pread(descriptor, _MENDED_BYTES, begin).rfind(b"\n") + 1
            os.ftruncate(descriptor, whole)
            return whole

    def _set_aside(self) -> None:
        older = [self._file.with_name(f"{self._file.name}.{number}") for number in range(1, _GENERATIONS)]
        for source, target in reversed(list(zip([self._file, *older], older, strict=False))):
            if source.exists():
                source.replace(target)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _opened(self._lock_file) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # released with the descriptor, also by a kill
            yield


class LineStream:
    """A pipe, terminal or file that belongs to somebody else, such as a container's output."""

    most_bytes = select.PIPE_BUF
    """What a pipe takes whole, however many write to it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._descriptor: int | None = None

    def append(self, lines: bytes) -> None:
        """Add lines; waits where nobody reads."""
        if self._descriptor is None:
            self._descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            _write_all(self._descriptor, lines)
        except OSError:
            os.close(self._descriptor)
            self._descriptor = None
            raise


@contextmanager
def _opened(file: Path) -> Iterator[int]:
    descriptor = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write(descriptor: int, lines: bytes) -> None:
    """All of it, or nothing."""
    before = os.fstat(descriptor).st_size
    try:
        _write_all(descriptor, lines)
    except OSError:
        os.ftruncate(descriptor, before)
        raise


def _write_all(descriptor: int, lines: bytes) -> None:
    left = memoryview(lines)
    while left:
        left = left[os.write(descriptor, left) :]
