"""The state folder of one platform: where its logs, records and metrics lie, and what it says of itself there."""

import hashlib
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from zooserve.errors import SetupError
from zooserve.processes.files import write_atomically
from zooserve.processes.identity import Process, boot_id, find, is_alive

__all__ = ["Phase", "PlatformState", "StateFolder", "Step", "unplanned"]

Phase = Literal["starting", "ready", "stopping", "stopped", "failed"]

# Ray's longest socket name below its folder takes 68 bytes, HAProxy's 77 (a node id of 56), of the kernel's 107.
_LONGEST_SOCKET_FOLDER = 107 - 77 - 1


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class Step(_Part):
    """One step of the start and how long it took; None while it runs."""

    name: str
    seconds: float | None = None
    detail: str = ""


class PlatformState(_Part):
    """What a platform says of itself, for `status`, `down` and whoever waits for `up --detach`."""

    boot_id: str
    pid: int
    start_time: int
    """The supervisor's, in ticks since boot."""
    phase: Phase
    started_at: float
    router: str = ""
    """host:port of the public API."""
    zoo_http: str = ""
    zoo_grpc: str = ""
    zoo_metrics: str = ""
    leaf_http: str = ""
    leaf_grpc: str = ""
    leaf_metrics: str = ""
    engine_http: str = ""
    """The platform's own OpenAI server; empty where no enabled model runs on it."""
    haproxy_metrics: str = ""
    ray_metrics: str = ""
    scrape_file: str = ""
    """A prometheus.yml with these ports in it; empty where none was written."""
    shm_prefix: str = ""
    steps: tuple[Step, ...] = ()
    error: str = ""
    restarts: dict[str, int] = {}
    """Restarts of each server since the start."""
    reloads: dict[str, int] = {}
    """Reloads of each Triton model since the start."""
    warnings: tuple[str, ...] = ()
    """What the checker found wrong in the zoo's repository, with file and line; everything else serves all the same."""
    stop_s: float = 120.0
    """How long stopping everything may take at the very most, by this platform's settings."""

    @property
    def is_running(self) -> bool:
        """Whether the supervisor that wrote this still runs."""
        return self.boot_id == boot_id() and is_alive(Process(self.pid, self.start_time))


def unplanned(phase: Phase) -> PlatformState:
    """The state of this process as a supervisor that did not get as far as choosing addresses."""
    own = find(os.getpid())
    start_time = own.start_time if own else 0
    return PlatformState(boot_id=boot_id(), pid=os.getpid(), start_time=start_time, phase=phase, started_at=time.time())


@dataclass(frozen=True)
class StateFolder:
    """The layout of one state folder."""

    root: Path

    @property
    def logs(self) -> Path:
        """One log file per server."""
        return self.root / "logs"

    @property
    def run(self) -> Path:
        """Records of what runs."""
        return self.root / "run"

    @property
    def metrics(self) -> Path:
        """prometheus_client's files, shared by the router's replicas and the supervisor."""
        return self.root / "metrics"

    @property
    def traces_file(self) -> Path:
        """The trace log's part on the disk."""
        return self.root / "traces.db"

    @property
    def lock_file(self) -> Path:
        """Held by the supervisor as long as it lives."""
        return self.run / "lock"

    @property
    def records_file(self) -> Path:
        """The processes of the platform."""
        return self.run / "processes.json"

    @property
    def proof_file(self) -> Path:
        """The first answers of the platform."""
        return self.run / "proof.json"

    @property
    def key_salt_file(self) -> Path:
        """What callers' keys are hashed with, for its owner alone to read; the same from one start to the next."""
        return self.run / "key_salt"

    @property
    def scrape_file(self) -> Path:
        """The Prometheus configuration of what runs."""
        return self.root / "prometheus.yml"

    @property
    def sockets(self) -> Path:
        """Ray's and HAProxy's private folder: outside `root`, because a unix socket's path has 107 bytes at most.

        Raises SetupError if the system's temporary folder itself is too long for that.
        """
        digest = hashlib.sha256(str(self.root).encode()).hexdigest()[:8]
        folder = Path(tempfile.gettempdir()) / f"zs-{digest}"
        if len(str(folder)) > _LONGEST_SOCKET_FOLDER:
            raise SetupError(f"{folder} is too long for unix sockets: set TMPDIR to a shorter path, such as /tmp.")
        return folder

    def create(self) -> None:
        """Make the folders that are missing, for nobody else to look into. Raises SetupError if that cannot be."""
        for folder in (self.root, self.logs, self.run, self.metrics):
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                # A root that was there before is the user's, and may be shared; what lies in it is ours.
                if folder != self.root and not folder.is_symlink():
                    folder.chmod(0o700)
            except OSError as exc:
                raise SetupError(f"{folder} cannot be made ({exc.strerror}): set ZOOSERVE_STATE_DIR.") from exc

    def log_file(self, name: str) -> Path:
        """Where the server of this name logs."""
        return self.logs / f"{name}.log"

    def write_state(self, state: PlatformState) -> None:
        """Replace what the platform says of itself."""
        write_atomically(self._state_file, state.model_dump_json(indent=1))

    def read_state(self) -> PlatformState | None:
        """What the last platform here said of itself, if any did."""
        try:
            return PlatformState.model_validate_json(self._state_file.read_text(encoding="utf-8"))
        except (OSError, ValidationError):
            return None

    @property
    def _state_file(self) -> Path:
        return self.run / "platform.json"
