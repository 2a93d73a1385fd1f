"""Writing files whole or not at all, and saying what went wrong when the disk refused."""

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO

from zooserve.errors import DiskFull, SetupError

__all__ = ["hash_file", "translated_disk_errors", "write_whole"]

CHUNK = 1 << 20
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST)


@contextmanager
def translated_disk_errors(folder: Path, needed: int) -> Iterator[None]:
    """A full or unwritable folder becomes an error that names it and the bytes that were to go there."""
    try:
        yield
    except OSError as exc:
        if exc.errno in NO_ROOM:
            raise DiskFull(no_room(folder, needed)) from exc
        if exc.errno in NOT_ALLOWED:
            raise SetupError(not_allowed(folder, exc.strerror or str(exc))) from exc
        raise


def require_writable(place: Path) -> None:
    """Raises SetupError where a file at `place`, or the first folder that it still needs, could not be made."""
    folder = next(parent for parent in place.parents if parent.exists())
    if not os.access(folder, os.W_OK | os.X_OK):
        reason = errno.EROFS if os.statvfs(folder).f_flag & os.ST_RDONLY else errno.EACCES
        raise SetupError(not_allowed(folder, os.strerror(reason)))


def not_allowed(folder: Path, reason: str) -> str:
    """What to say when nothing can be written below `folder`; a container's user is seldom who one thinks."""
    return (
        f"{folder} cannot be written: {reason}, for user {os.geteuid()}. Mend its permissions (chown -R "
        f"{os.geteuid()}), or choose another."
    )


def no_room(folder: Path, needed: int) -> str:
    """What to say when `needed` bytes did not fit below `folder`."""
    free = "an unknown number of"
    with suppress(OSError):
        free = f"{shutil.disk_usage(folder).free:,}"
    return (
        f"{folder}: no room for {needed:,} bytes, {free} bytes are free. Make room there, or point "
        "ZOOSERVE_CACHE_DIR (downloads) or ZOOSERVE_REPOSITORY (models) at a larger disk; the next run continues."
    )


@contextmanager
def write_whole(target: Path, needed: int, mode: int = 0o644) -> Iterator[IO[bytes]]:
    """A file to write; it appears at `target` when the block ends well, and leaves no trace when it does not."""
    with translated_disk_errors(target.parent, needed):
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False)  # noqa: SIM115
        try:
            with temporary:
                yield temporary
                temporary.flush()
                os.fchmod(temporary.fileno(), mode)
                # Without it a power cut can leave the renamed file empty on some file systems.
                os.fsync(temporary.fileno())
            Path(temporary.name).replace(target)
        except BaseException:
            with suppress(OSError):
                Path(temporary.name).unlink(missing_ok=True)
            raise


def hash_file(path: Path, report: Callable[[int], object] = lambda _: None) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            report(len(chunk))
    return digest.hexdigest()
