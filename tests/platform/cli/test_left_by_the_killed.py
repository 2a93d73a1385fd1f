"""What a killed process left is cleared before a port counts as taken: it may be that process that has it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from zooserve.processes.records import ProcessRecords
from zooserve.processes.state import StateFolder
from zooserve_cli.main import app

ROOT = Path(__file__).parents[3]
REPOSITORY = {"ZOOSERVE_REPOSITORY": str(ROOT / "model_repository")}
LISTENING = """
import signal, socket
taken = socket.create_server(("127.0.0.1", 0))
print(taken.getsockname()[1], flush=True)
signal.pause()
"""


@pytest.fixture
def left(tmp_path: Path) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A process that listens, in the records of the state folder; and its port."""
    process = subprocess.Popen([sys.executable, "-c", LISTENING], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    folder = StateFolder(tmp_path)
    folder.create()
    ProcessRecords(folder.records_file).take_stock(process.pid, {})
    yield process, process.stdout.readline().strip()
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize(
    ("command", "port", "then"),
    [
        (["route"], "ZOOSERVE_PORT", {"ZOOSERVE_KEY_SALT_FILE": "/missing", "ZOOSERVE_ZOO__HTTP_PORT": "1"}),
        (["triton", "leaf"], "ZOOSERVE_LEAF__HTTP_PORT", {"ZOOSERVE_CATALOGUE": "/missing", **REPOSITORY}),
    ],
)
def test_a_port_that_a_killed_one_left_is_free_again(
    left: tuple["subprocess.Popen[str]", str], tmp_path: Path, command: list[str], port: str, then: dict[str, str]
) -> None:
    process, taken = left
    own = {
        "ZOOSERVE_STATE_DIR": str(tmp_path),
        "ZOOSERVE_CATALOGUE": str(ROOT / "zoo.yaml"),
        "ZOOSERVE_MODELS": "embed",
    }
    done = CliRunner().invoke(app, command, env={**own, port: taken, **then})
    assert "/missing" in str(done.exception)  # what comes after the ports
    assert process.wait(10) != 0
