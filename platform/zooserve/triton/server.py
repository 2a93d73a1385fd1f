"""One tritonserver process: start it, wait until it loaded what it could, stop it, start it again."""

import http.client
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from zooserve.errors import ServerFailed
from zooserve.processes.child import Child, ChildServer
from zooserve.processes.shared_memory import remove_regions
from zooserve.triton.installation import Installation
from zooserve.unproxied import open_unproxied

__all__ = ["METRICS_ARGUMENTS", "Addresses", "TritonServer"]


Stamps = frozenset[tuple[str, int, int]]
"""Of each file: path, time of change, size."""

# The longest pause of a start that went on was 15 s, beside 15 busy neighbours.
_STALLED_S = 90.0
_STUB_START_S = 600
METRICS_ARGUMENTS = (
    "--metrics-config=counter_latencies=true",
    # Quantiles of the last minute: nv_inference_queue_summary_us and its like. Off unless asked for.
    "--metrics-config=summary_latencies=true",
    # nv_inference_first_response_histogram_ms, which 2.51 has not: it takes the setting, and later ones heed it.
    "--metrics-config=histogram_latencies=true",
)


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


class TritonServer(ChildServer):
    """A tritonserver child process over one model repository; it loads `models`, by default all that are there.

    With `response_cache_bytes` it keeps answers to repeated requests of the models that ask for it in their
    configuration, in so much memory; `arguments` are added to its command line. With `shares_output` it writes where
    this process does, not into the log.
    """

    def __init__(
        self,
        name: str,
        installation: Installation,
        repository: Path,
        addresses: Addresses,
        log_file: Path,
        shm_prefix: str = "zooserve-",
        models: Sequence[str] = ("*",),
        response_cache_bytes: int = 0,
        arguments: Sequence[str] = (),
        *,
        shares_output: bool = False,
    ) -> None:
        self.name = name
        self.addresses = addresses
        super().__init__(Child(name, log_file, shares_output=shares_output))
        self._installation = installation
        self._repository = repository
        self._models = tuple(models)
        self._response_cache_bytes = response_cache_bytes
        self._arguments = tuple(arguments)
        self._files_at_start: Stamps = frozenset()
        self._shm_prefix = f"{shm_prefix}{name}-{addresses.http_port}-"

    @property
    def caches(self) -> bool:
        """Whether it keeps answers. It keeps them beyond a reload of their model, whatever has become of its files."""
        return self._response_cache_bytes > 0

    def versions(self) -> list[tuple[str, str]]:
        """The versions that lie in the repository of each model that it loads."""
        models = [folder.name for folder in self._repository.iterdir()] if "*" in self._models else self._models
        return [
            (model, version.name)
            for model in models
            for version in sorted((self._repository / model).glob("[0-9]*"))
            if version.name.isdigit()
        ]

    def files_changed(self) -> bool:
        """Whether the repository's files are others than at the last start."""
        return self._files_at_start != _stamps(self._repository)

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
            *METRICS_ARGUMENTS,
            # One broken model must not take the others down; readiness is proven by real inferences instead.
            "--exit-on-error=false",
            "--model-control-mode=explicit",
            *(f"--load-model={model}" for model in self._models),
            # Two servers on one machine must not share the stubs' shared-memory names.
            f"--backend-config=python,shm-region-prefix-name={self._shm_prefix}",
            # After Triton's own 30 s a stub that starts slowly on a busy machine is given up, and the server then waits
            # for ever for the end of this stub that has meanwhile started (seen in wait4 under StubLauncher::Launch).
            f"--backend-config=python,stub-timeout-seconds={_STUB_START_S}",
            *([f"--cache-config=local,size={self._response_cache_bytes}"] if self.caches else []),
            *self._arguments,
        ]

    def start(self) -> None:
        """Start the process, which ends when this one does; it loads its models while this returns."""
        self._files_at_start = _stamps(self._repository)
        self._child.start(self.command(), self._installation.environment)

    def wait_until_loaded(self, timeout_s: float) -> None:
        """Block until the server has loaded what it could. Raises ServerFailed with the log's end otherwise.

        Says that loading is over, not that any model works: ask each with a real inference.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.pid is None:
                raise ServerFailed(f"{self.name}: tritonserver ended while starting.\n{self.log_tail()}")
            if self._answers():
                return
            if self._child.silent_s > _STALLED_S:
                raise ServerFailed(
                    f"{self.name}: it stopped loading, silent for {_STALLED_S:.0f} s.\n{self.log_tail()}"
                )
            time.sleep(0.1)
        raise ServerFailed(f"{self.name}: not loaded after {timeout_s:.0f} s.\n{self.log_tail()}")

    def stop(self, timeout_s: float) -> None:
        """SIGTERM, then SIGKILL once `timeout_s` is over; with its stubs and its shared memory."""
        self._child.stop(timeout_s)
        remove_regions(self._shm_prefix)

    def _answers(self) -> bool:
        # Liveness, not readiness: it is served once loading is over, where readiness stays 400 for as long as a
        # single model is broken (measured with `--exit-on-error=false`).
        try:
            with open_unproxied(f"http://{self.addresses.http}/v2/health/live", timeout=1) as answer:
                return bool(answer.status == 200)
        except (http.client.HTTPException, OSError):  # another server may have taken the port meanwhile
            return False


def _stamps(repository: Path) -> Stamps:
    files = (file for file in repository.rglob("*") if file.is_file() and file.suffix != ".pyc")
    return frozenset((str(file), (stat := file.stat()).st_mtime_ns, stat.st_size) for file in files)
