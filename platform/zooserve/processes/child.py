"""A server as a child process: started with its log in a file, ended with everything below it."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from zooserve.processes.identity import descendants, end, process_table
from zooserve.processes.kinship import ends_with_parent

__all__ = ["Child", "ChildServer", "rotate", "tail"]

_TAIL_BYTES = 64 * 1024
_GRACE_S = 2.0
_LOG_BYTES = 50 * 2**20


class Child:
    """One child process of a fixed name. It ends when its parent dies, and may be started again once it has ended.

    Before each start a log of more than 50 MB is set aside as `.1`, in place of the one before; one run's log has no
    bound. With `shares_output` it writes where its parent does, not into the log.
    """

    def __init__(self, name: str, log_file: Path, *, shares_output: bool = False) -> None:
        self.name = name
        self.log_file = log_file
        self._shares_output = shares_output
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def last_pid(self) -> int | None:
        """The process id of the last start, whether it still runs or not."""
        return self._process.pid if self._process else None

    @property
    def exit_code(self) -> int | None:
        """How it ended; negative is a signal. None while it runs, and before its first start."""
        return self._process.poll() if self._process else None

    @property
    def silent_s(self) -> float:
        """Seconds since it last logged anything; 0 where it shares its parent's output, which nobody here reads."""
        if self._shares_output:
            return 0.0
        return time.time() - self.log_file.stat().st_mtime

    def start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start the process, its output appended to the log."""
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        workdir = self.log_file.parent / f"{self.name}.cwd"
        # Python children have their folder on sys.path: an empty one, so that nothing stray is imported.
        workdir.mkdir(exist_ok=True)
        rotate(self.log_file)
        self.log_file.touch()
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env=environment,
                cwd=workdir,
                stdin=subprocess.DEVNULL,
                stdout=None if self._shares_output else log,
                stderr=None if self._shares_output else subprocess.STDOUT,
                # A Ctrl-C at the terminal is the supervisor's to answer, in order.
                start_new_session=True,
                preexec_fn=ends_with_parent(),
            )

    def stop(self, timeout_s: float) -> None:
        """SIGTERM, then SIGKILL once `timeout_s` is over; then the same for what is left below it."""
        if self._process is None:
            return
        below = descendants([self._process.pid], process_table())
        self._process.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        end(below, _GRACE_S)

    def log_tail(self, lines: int = 20) -> str:
        """The last lines of its log."""
        return "\n".join(tail(self.log_file, lines))


class ChildServer:
    """A server that is one child process, and what can be seen of that."""

    def __init__(self, child: Child) -> None:
        self._child = child

    @property
    def pid(self) -> int | None:
        """The server's process id while it runs."""
        return self._child.pid

    @property
    def last_pid(self) -> int | None:
        """The process id of the last start, whether it still runs or not."""
        return self._child.last_pid

    @property
    def exit_code(self) -> int | None:
        """How the server ended; negative is a signal. None while it runs, and before its first start."""
        return self._child.exit_code

    def log_tail(self, lines: int = 20) -> str:
        """The last lines of the server's log."""
        return self._child.log_tail(lines)


def rotate(log: Path) -> None:
    """Set a log aside that has grown past 50 MB; nobody may have it open."""
    if log.exists() and log.stat().st_size > _LOG_BYTES:
        log.replace(log.with_name(f"{log.name}.1"))


def tail(file: Path, lines: int) -> list[str]:
    """The last lines of a file; none if it is not there."""
    if not file.exists():
        return []
    with file.open("rb") as log:
        log.seek(max(0, file.stat().st_size - _TAIL_BYTES))
        return log.read().decode(errors="replace").splitlines()[-lines:]
