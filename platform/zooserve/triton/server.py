"""One tritonserver process: start it, wait until it loaded what it could, stop it."""

import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from zooserve.errors import ServerFailed
from zooserve.triton.installation import Installation

__all__ = ["Addresses", "TritonServer"]


@dataclass(frozen=True)
class Addresses:
    """Where one server listens, loopback unless said otherwise."""

    host: str
    http_port: int
    grpc_port: int
    metrics_port: int

    @property
    def http(self) -> str:
        """host:port of the KServe HTTP endpoint."""
        return f"{self.host}:{self.http_port}"

    @property
    def grpc(self) -> str:
        """host:port of the KServe gRPC endpoint."""
        return f"{self.host}:{self.grpc_port}"

    @property
    def metrics(self) -> str:
        """host:port of the Prometheus endpoint."""
        return f"{self.host}:{self.metrics_port}"


class TritonServer:
    """A tritonserver child process over one model repository."""

    def __init__(
        self,
        name: str,
        installation: Installation,
        repository: Path,
        addresses: Addresses,
        log_file: Path,
        extra_arguments: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.addresses = addresses
        self.log_file = log_file
        self._installation = installation
        self._repository = repository
        self._extra_arguments = tuple(extra_arguments)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The server's process id while it runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def command(self) -> list[str]:
        """The command line, every listener bound to the given host."""
        at = self.addresses
        return [
            str(self._installation.binary),
            f"--model-repository={self._repository}",
            f"--backend-directory={self._installation.backends}",
            f"--cache-directory={self._installation.caches}",
            f"--http-address={at.host}",
            f"--http-port={at.http_port}",
            f"--grpc-address={at.host}",
            f"--grpc-port={at.grpc_port}",
            f"--metrics-address={at.host}",
            f"--metrics-port={at.metrics_port}",
            # One broken model must not take the others down; readiness is proven by real inferences instead.
            "--exit-on-error=false",
            "--model-control-mode=explicit",
            "--load-model=*",
            # Two servers on one machine must not share the stubs' shared-memory names.
            f"--backend-config=python,shm-region-prefix-name=zooserve_{self.name}_{at.http_port}_",
            *self._extra_arguments,
        ]

    def start(self) -> None:
        """Start the process; it loads its models while this returns."""
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        workdir = self.log_file.parent / f"{self.name}.cwd"
        # A stub starts from the server's folder with "" on sys.path: an empty one, so nothing stray is imported.
        workdir.mkdir(exist_ok=True)
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), env=self._installation.environment, cwd=workdir, stdout=log, stderr=subprocess.STDOUT
            )

    def wait_until_loaded(self, timeout_s: float) -> None:
        """Block until the server answers its readiness route. Raises ServerFailed with the log's end otherwise.

        Says that loading is over, not that any model works: ask each with a real inference.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.pid is None:
                raise ServerFailed(f"{self.name}: tritonserver ended while starting.\n{self.log_tail()}")
            if self._answers_ready():
                return
            time.sleep(0.1)
        raise ServerFailed(f"{self.name}: not ready after {timeout_s:.0f} s.\n{self.log_tail()}")

    def stop(self, timeout_s: float) -> None:
        """SIGTERM, then SIGKILL once `timeout_s` is over."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def log_tail(self, lines: int = 20) -> str:
        """The last lines of the server's log."""
        if not self.log_file.exists():
            return ""
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])

    def _answers_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.addresses.http}/v2/health/ready", timeout=1) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False
