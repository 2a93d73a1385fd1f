"""`zooserve reembed` with the real platform, Ray Data and a local Qdrant: left, continued, searched, taken back."""

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import QdrantClient, models

from zooserve import Zoo
from zooserve.processes.identity import descendants, is_alive, process_table
from zooserve.sdk.index import Index

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

OLD = Index("00000000000000aa", "old", "1", 3)
COUNT = 240
WAIT_S = 400
DUCK = "A duck swims on the pond behind the mill."


class Docs:
    """A local Qdrant with an alias `docs` on vectors of another model."""

    def __init__(self, platform: Any, root: Path) -> None:
        self.platform = platform
        self.store = root / "store"
        self.state = platform.folder.root / "reembed"
        client = QdrantClient(path=str(self.store))
        params = models.VectorParams(size=3, distance=models.Distance.COSINE)
        client.create_collection("docs--old", vectors_config=params, metadata=OLD.metadata)
        texts = [f"Paragraph {number} of a dull report on taxes and their collection." for number in range(COUNT - 1)]
        points = [
            models.PointStruct(id=number, vector=[1, 2, 3], payload={"text": text, "n": number})
            for number, text in enumerate([*texts, DUCK])
        ]
        client.upsert("docs--old", points)
        alias = models.CreateAlias(collection_name="docs--old", alias_name="docs")
        client.update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])
        client.close()

    def arguments(self, *more: str) -> tuple[str, ...]:
        """Of the command."""
        return ("reembed", "docs", "--store", str(self.store), "--router", self.platform.url, *more)

    def run(self, *more: str) -> "subprocess.CompletedProcess[str]":
        """The command to its end."""
        return self.platform.zooserve(*self.arguments(*more), timeout_s=WAIT_S)

    def embedded(self) -> int:
        """Parts in the ledger."""
        return sum(file.read_bytes().count(b'"embedded"') for file in self.state.glob("docs-*/ledger.jsonl"))


@pytest.fixture(scope="module")
def docs(platform, tmp_path_factory) -> Docs:
    return Docs(platform, tmp_path_factory.mktemp("reembed"))


@pytest.fixture(scope="module")
def left(docs: Docs) -> tuple[int, str, set[Any]]:
    """A run that is left by Ctrl-C in the middle: its exit code, what it said, and which of its processes stayed."""
    command = docs.platform.command(*docs.arguments("--to", "embed", "--part", "8"))
    process = subprocess.Popen(
        command, env=docs.platform.variables(), cwd=docs.platform.root, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + WAIT_S
    while not docs.embedded() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)  # between two looks at a file
    below = descendants([process.pid], process_table())
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=WAIT_S)
    deadline = time.monotonic() + 60
    while any(map(is_alive, below)) and time.monotonic() < deadline:
        time.sleep(0.05)  # the kernel takes away what Ray has ended
    return process.returncode, said, {each for each in below if is_alive(each)}


@pytest.fixture(scope="module")
def done(docs: Docs, left: Any) -> dict[str, Any]:
    """The summary of the run that went on."""
    finished = docs.run("--to", "embed", "--part", "8", "--json")
    assert finished.returncode == 0, finished.stderr
    assert "Going on" in finished.stderr
    return json.loads(finished.stdout)


def test_ctrl_c_ends_in_order_leaves_nothing_running_and_says_how_to_go_on(docs: Docs, left: Any) -> None:
    code, said, stayed = left
    assert code == 130, said
    assert "the same command goes on" in said
    assert "Traceback" not in said
    assert not stayed


def test_the_same_command_goes_on_to_the_end(docs: Docs, done: dict[str, Any]) -> None:
    assert done["outcome"] == "switched"
    assert (done["points"], done["dead"], done["rows"]) == (COUNT, 0, COUNT)
    assert done["proof"]["found_again"] == 1.0


def test_the_sdk_searches_what_came_of_it(docs: Docs, done: dict[str, Any]) -> None:
    with Zoo(docs.platform.url, timeout_s=120) as zoo:
        collection = zoo.collection("docs", path=str(docs.store))
        assert collection.search("bird on the water", limit=1)[0].text == DUCK


def test_asked_again_there_is_nothing_to_do(docs: Docs, done: dict[str, Any]) -> None:
    again = docs.run("--to", "embed")
    assert again.returncode == 0, again.stderr
    assert "nothing to do" in again.stdout


def test_rolled_back_the_old_collection_is_found_again(docs: Docs, done: dict[str, Any]) -> None:
    back = docs.run("--rollback", "--json")
    assert back.returncode == 0, back.stderr
    assert json.loads(back.stdout)["restored"] == "docs--old"
    twice = docs.run("--rollback")
    assert twice.returncode == 1
    assert "nothing to go back to" in twice.stderr
