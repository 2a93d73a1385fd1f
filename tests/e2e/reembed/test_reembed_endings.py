"""A re-embedding and its Ray: killed, not there yet, or somebody else's. Platform and Qdrant are stand-ins."""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import models

from zooserve.processes.identity import Process, command_of, descendants, end, is_alive, process_table
from zooserve.processes.ports import free_ports
from zooserve.sdk.index import Index

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[3]
COUNT, PART = 640, 32
WAIT_S = 200
OLD = Index("00000000000000aa", "old", "1", 3)


class Job:
    """`zooserve reembed docs`, at a pace that leaves time for what happens to it."""

    def __init__(self, qdrant: Any, router: Any, state: Path) -> None:
        self.state = state
        self.qdrant = qdrant
        self.arguments = [
            sys.executable, "-m", "zooserve_cli", "reembed", "docs", "--to", "embed", "--qdrant", qdrant.url,
            "--router", router.url, "--part", str(PART), "--json",
        ]  # fmt: skip

    def started(self, *more: str) -> "subprocess.Popen[str]":
        """The command."""
        environment = {**os.environ, "ZOOSERVE_STATE_DIR": str(self.state)}
        return subprocess.Popen(
            [*self.arguments, *more], env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip

    def embedded(self) -> int:
        """Parts in the ledger."""
        return sum(file.read_bytes().count(b'"embedded"') for file in self.state.glob("reembed/docs-*/ledger.jsonl"))

    def check_whole(self, said: str) -> None:
        """Every row is there once."""
        assert json.loads(said)["outcome"] == "switched"
        found = self.qdrant.client.scroll("docs", limit=2 * COUNT)[0]
        assert [record.payload["n"] for record in sorted(found, key=lambda each: each.id)] == list(range(COUNT))


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    spec = importlib.util.spec_from_file_location("reembed_standins_e2e", ROOT / "benchmarks" / "reembed_standins.py")
    assert spec is not None
    assert spec.loader is not None
    standins = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(standins)
    qdrant, router = standins.QdrantStandIn(), standins.RouterStandIn(dimensions=8)
    client = qdrant.client
    params = models.VectorParams(size=3, distance=models.Distance.COSINE)
    client.create_collection("docs--old", vectors_config=params, metadata=OLD.metadata)
    payloads = [{"text": f"Row {number}.", "n": number} for number in range(COUNT)]
    client.upsert("docs--old", [models.PointStruct(id=each["n"], vector=[1, 2, 3], payload=each) for each in payloads])
    alias = models.CreateAlias(collection_name="docs--old", alias_name="docs")
    client.update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])
    with qdrant.serving(), router.serving():
        yield Job(qdrant, router, tmp_path)
    client.close()


def until(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)  # between two looks


def below(process: "subprocess.Popen[str]", word: str) -> list[Process]:
    found = descendants([process.pid], process_table())
    return [each for each in found if word in command_of(each.pid).partition(" ")[0]]


def stayed(processes: list[Process]) -> set[Process]:
    """Of them what still runs when the kernel had its time."""
    deadline = time.monotonic() + 30
    while any(map(is_alive, processes)) and time.monotonic() < deadline:
        time.sleep(0.05)  # the kernel takes away what has ended
    return {each for each in processes if is_alive(each)}


def test_a_raylet_that_is_killed_ends_the_job_in_words_and_the_same_command_makes_it_whole(job: Job) -> None:
    process = job.started("--rate", "100")
    until(lambda: job.embedded() > 1, process)
    everything = below(process, "")
    os.kill(below(process, "raylet/raylet")[0].pid, signal.SIGKILL)
    _, told = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1, told
    assert "Ray failed: its raylet has ended" in told
    assert "the same command goes on" in told
    assert "Traceback" not in told
    assert not stayed(everything)
    assert job.qdrant.client.get_aliases().aliases[0].collection_name == "docs--old"
    again = job.started()
    until(lambda: bool(below(again, "ray::MapBatches")), again)
    os.kill(below(again, "ray::MapBatches")[0].pid, signal.SIGKILL)  # Ray Data does its part once more
    said, told = again.communicate(timeout=WAIT_S)
    assert again.returncode == 0, told
    job.check_whole(said)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_while_ray_starts_ends_it_with_one_line(job: Job, number: signal.Signals) -> None:
    process = job.started()
    until(lambda: bool(below(process, "raylet/raylet")), process)
    everything = below(process, "")
    process.send_signal(number)
    process.send_signal(number)
    said, told = process.communicate(timeout=WAIT_S)
    assert process.returncode == 128 + number, told
    lines = [line for line in told.splitlines() if line]
    assert lines[-1] == "Interrupted. Nothing is lost: the same command goes on from here."
    assert len(lines) == 2, told  # and that Ray starts
    assert said == ""
    assert not stayed(everything)


@pytest.fixture
def head(tmp_path: Path) -> Iterator[str]:
    """The address of a Ray that somebody else runs."""
    (port,) = free_ports(1)
    folder = Path(tempfile.gettempdir()) / f"zs-head-{port}"  # a socket's path has 107 bytes at most
    command = [
        str(Path(sys.executable).with_name("ray")), "start", "--head", "--node-ip-address=127.0.0.1", f"--port={port}",
        "--num-cpus=2", "--include-dashboard=false", "--object-store-memory=100000000", f"--temp-dir={folder}",
        "--block", "--disable-usage-stats",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        assert any("Ray runtime started" in line for line in process.stdout)
        yield f"127.0.0.1:{port}"
        assert process.poll() is None  # it ends, too, with any of its own
    finally:
        everything = descendants([process.pid], process_table())
        process.kill()  # asked in order it takes half a minute
        process.communicate(timeout=WAIT_S)
        end(everything, 5)
        shutil.rmtree(folder, ignore_errors=True)


def test_a_ray_that_somebody_else_runs_is_joined_and_goes_on_running(job: Job, head: str) -> None:
    process = job.started("--ray", head)
    said, told = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, told
    job.check_whole(said)
