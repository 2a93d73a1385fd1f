"""What a platform leaves behind when it cannot clean up itself, and how it is cleared away."""

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from zooserve.errors import AlreadyRunning, SetupError
from zooserve.processes.records import ProcessRecords, Record
from zooserve.processes.shared_memory import prefix_of, remove_regions
from zooserve.processes.state import StateFolder

__all__ = ["Cleared", "clear", "held", "make_private", "remove_sockets"]

_log = logging.getLogger("zooserve.leftovers")
_GRACE_S = 5.0


@dataclass(frozen=True)
class Cleared:
    """What was found and ended."""

    processes: tuple[Record, ...]
    regions: tuple[str, ...]

    @property
    def nothing(self) -> bool:
        """Whether there was nothing to clear."""
        return not self.processes and not self.regions


@contextmanager
def held(folder: StateFolder, wait_s: float = 0) -> Iterator[None]:
    """Hold the state folder for the block, after so many seconds. Raises AlreadyRunning if another supervisor does."""
    folder.create()
    lock = FileLock(folder.lock_file)
    try:
        lock.acquire(timeout=wait_s)
    except Timeout as exc:
        state = folder.read_state()
        who = f"process {state.pid}" if state else "another process"
        who += f", http://{state.router}" if state and state.router else ""
        raise AlreadyRunning(
            f"A platform already runs from {folder.root} ({who}). "
            "Stop it with `zooserve down`, or set ZOOSERVE_STATE_DIR for a second one."
        ) from exc
    try:
        yield
    finally:
        lock.release()


def clear(folder: StateFolder) -> Cleared:
    """End what is recorded and still runs; remove its shared memory, metrics and sockets. Hold the folder meanwhile.

    Raises SetupError if the sockets' folder belongs to somebody else.
    """
    records = ProcessRecords(folder.records_file)
    processes = records.reap(_GRACE_S)
    regions = remove_regions(prefix_of(folder.root))
    records.write([])
    for left in folder.metrics.iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    remove_sockets(folder)
    return Cleared(tuple(processes), tuple(regions))


def make_private(path: Path) -> None:
    """Make a folder that nobody else may enter; the temporary folder is everybody's."""
    path.mkdir(mode=0o700, exist_ok=True)
    _require_own(path)
    path.chmod(0o700)


def remove_sockets(folder: StateFolder) -> None:
    """Remove Ray's and HAProxy's private folder; Ray's logs are kept in the state folder, those of the last run.

    Raises SetupError, before anything is touched, if it belongs to somebody else.
    """
    sockets = folder.sockets
    if not sockets.is_symlink() and not sockets.exists():
        return
    _require_own(sockets)
    for logs in sockets.glob("r/session_2*/logs"):
        _keep(logs, folder.logs / "ray")
    shutil.rmtree(sockets, ignore_errors=True)


def _keep(logs: Path, target: Path) -> None:
    """Copy what can be copied: a full disk must not keep the sockets where they are."""
    shutil.rmtree(target, ignore_errors=True)
    try:
        shutil.copytree(logs, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.sock"))
    except OSError as exc:  # shutil.Error is one, too
        _log.warning("Ray's logs could not all be kept: %s", str(exc)[:500])


def _require_own(path: Path) -> None:
    status = path.lstat()
    if not path.is_dir() or path.is_symlink() or status.st_uid != Path("/proc/self").stat().st_uid:
        raise SetupError(f"{path} belongs to somebody else: remove it, or set TMPDIR.")
