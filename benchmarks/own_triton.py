"""A Triton of a benchmark's own, over copies of the zoo's models with configurations of its own."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpu import seconds_of
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from zooserve.processes.identity import command_of, descendants, process_table
from zooserve.processes.ports import reserved_ports
from zooserve.settings import Settings
from zooserve.triton.installation import find_installation
from zooserve.triton.server import Addresses, TritonServer
from zooserve_cli.plan import own_backends

__all__ = ["ZOO", "Config", "Copy", "Edit", "OwnTriton", "lay_out", "own_triton", "parameter", "renamed_steps"]

ZOO = Path(__file__).parents[1] / "model_repository/zoo"
_START_S = 240

Config = Any
"""`model_config_pb2.ModelConfig`; the generated module brings no types."""
Edit = Callable[[Config], None]


@dataclass(frozen=True)
class Copy:
    """A model of the zoo under another name, or the same, its configuration edited."""

    source: str
    name: str = ""
    edit: Edit = lambda config: None

    @property
    def target(self) -> str:
        """What the copy is called."""
        return self.name or self.source


@dataclass(frozen=True)
class OwnTriton:
    """A running server."""

    server: TritonServer

    @property
    def http(self) -> str:
        """host:port."""
        return self.server.addresses.http

    @property
    def metrics(self) -> str:
        """host:port of its metrics."""
        return self.server.addresses.metrics

    def cpu_s(self) -> float:
        """CPU seconds so far of the server and all its stubs."""
        return sum(seconds_of(pid) for pid in self._pids())

    def stub_cpu_s(self, model: str) -> float:
        """CPU seconds so far of one model's stubs."""
        return sum(seconds_of(pid) for pid in self._stubs(model))

    def stub_memory_mb(self, model: str) -> float:
        """Resident megabytes of one model's stubs."""
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self._stubs(model))
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def memory_mb(self) -> float:
        """Resident megabytes of the server itself, its cache among them."""
        return int(Path(f"/proc/{self.server.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def _pids(self) -> list[int]:
        pid = self.server.pid
        assert pid is not None, self.server.log_tail()
        return [pid, *(process.pid for process in descendants([pid], process_table()))]

    def _stubs(self, model: str) -> list[int]:
        # A stub is started with its instance's name, MODEL_GROUP_INSTANCE.
        return [pid for pid in self._pids() if f" {model}_0_" in command_of(pid)]


def parameter(config: Config, name: str, value: str | None) -> None:
    """Set a parameter of a configuration, or take it away."""
    if value is None:
        config.parameters.pop(name, None)
    else:
        config.parameters[name].string_value = value


def renamed_steps(names: dict[str, str]) -> Edit:
    """An edit that leads an ensemble's steps to the copies of these names."""

    def edit(config: Config) -> None:
        for step in config.ensemble_scheduling.step:
            step.model_name = names.get(step.model_name, step.model_name)

    return edit


def lay_out(target: Path, copies: Sequence[Copy]) -> None:
    """A repository of these copies; whatever is not edited is a link to the zoo's file."""
    for copy in copies:
        folder = target / copy.target
        shutil.copytree(ZOO / copy.source, folder, copy_function=os.symlink)
        config = model_config_pb2.ModelConfig()
        text_format.Parse((folder / "config.pbtxt").read_text(), config)
        config.name = copy.target
        copy.edit(config)
        (folder / "config.pbtxt").unlink()
        (folder / "config.pbtxt").write_text(text_format.MessageToString(config))


@contextmanager
def own_triton(copies: Sequence[Copy], *arguments: str) -> Iterator[OwnTriton]:
    """A server over these copies, with these arguments besides the platform's; stopped at the end."""
    with tempfile.TemporaryDirectory(prefix="zooserve-bench-") as scratch:
        folder = Path(scratch)
        repository = folder / "models"
        repository.mkdir()
        lay_out(repository, copies)
        installation = find_installation(Settings().resolved().cache_dir, own_backends())
        server = TritonServer(
            "bench",
            installation,
            repository,
            Addresses("127.0.0.1", *reserved_ports(3)),
            folder / "triton.log",
            shm_prefix=f"zooserve-bench-{os.getpid()}-",
            arguments=arguments,
        )
        server.start()
        try:
            server.wait_until_loaded(_START_S)
            yield OwnTriton(server)
        finally:
            server.stop(10)
