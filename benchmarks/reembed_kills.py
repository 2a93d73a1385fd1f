"""Kill `zooserve reembed` with SIGKILL at points drawn by chance over its time, let it go on each time, and compare.

The collections that come of it must be that of a run which nobody disturbed: ids, payloads and the vectors that are
carried over exactly, the vectors made anew to cosine 0.99999, the dead letters once each. Needs a running platform:

    python benchmarks/reembed_kills.py [--router http://127.0.0.1:8000] [--kills 10] [--chunks 600] [--seed 1] [--json]
"""

import argparse
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

from qdrant_client import QdrantClient, models

from zooserve.processes.identity import command_of, process_table
from zooserve.sdk.index import Index
from zooserve.settings import Settings
from zooserve_cli.reembedding.comparing import same_payload
from zooserve_cli.reembedding.job import JobFolder
from zooserve_cli.reembedding.ray_session import RayPlan

WORDS = 25
LONGEST_WORD = 20
"""Underlines and the like are a token for each of their characters."""
DIMENSIONS = 8
LEAST_COSINE = 0.99999
BAD_FIRST, BAD_EVERY = 7, 50
"""Which rows cannot be embedded."""
ALIAS = "docs"
OLD = Index("00000000000000aa", "of_old", "1", DIMENSIONS)
PART = 16
LIMIT_S = 600


@dataclass
class Kill:
    """One kill: when, in which run of the command, and how far the job was then."""

    number: int
    after_s: float
    parts_embedded: int
    """Parts in the ledger; -1 where there was no ledger yet."""
    switched: bool


def texts(count: int) -> Iterator[str]:
    """Passages of Python's language reference, and the same again with another beginning when they are used up."""
    words = [word for _, page in sorted(topics.items()) for word in page.split() if len(word) < LONGEST_WORD]
    for number in range(count):
        start = number * WORDS % (len(words) - WORDS)
        yield f"{number}. {' '.join(words[start : start + WORDS])}"


def points(count: int, chance: random.Random) -> Iterator[Any]:
    """Points with ids of both kinds and everything that a payload may hold; some of them cannot be embedded."""
    for number, text in enumerate(texts(count)):
        point = number if number % 2 else str(uuid.UUID(int=chance.getrandbits(128)))
        payload: dict[str, Any] = {
            "text": text, "number": number, "ratio": number / 7, "whole": float(number), "nothing": None,
            "nested": {"list": [1, 1.0, None, {"deep": [True, "Größe 🦆"]}], "empty": {}, "none": []},
        }  # fmt: skip
        if number % BAD_EVERY == BAD_FIRST:
            payload["text"] = [None, 12, "", "word " * 3000][number // BAD_EVERY % 4]
        vector = {"": _unit(chance, DIMENSIONS), "picture": _unit(chance, 4)}
        yield models.PointStruct(id=point, vector=vector if number % 3 else {"": vector[""]}, payload=payload)


def make_source(folder: Path, count: int, seed: int) -> None:
    """A local Qdrant with an alias on a collection of another space."""
    params = models.VectorParams(size=DIMENSIONS, distance=models.Distance.COSINE)
    with closing(QdrantClient(path=str(folder))) as client:
        client.create_collection(
            "docs--of-old",
            vectors_config={"": params, "picture": models.VectorParams(size=4, distance=models.Distance.DOT)},
            metadata={**OLD.metadata, "owner": "somebody"},
        )
        client.upsert("docs--of-old", list(points(count, random.Random(seed))))
        alias = models.CreateAlias(collection_name="docs--of-old", alias_name=ALIAS)
        client.update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])


class Job:
    """One job in folders of its own."""

    def __init__(self, root: Path, source: Path, router: str, model: str) -> None:
        self.store = root / "store"
        self.state = root / "state"
        shutil.copytree(source, self.store)
        self._command = [
            sys.executable, "-m", "zooserve_cli", "reembed", ALIAS, "--to", model, "--store", str(self.store),
            "--router", router, "--part", str(PART), "--json",
        ]  # fmt: skip

    def start(self) -> "subprocess.Popen[str]":
        """The command, in a process group of its own."""
        environment = {**os.environ, "ZOOSERVE_STATE_DIR": str(self.state)}
        return subprocess.Popen(
            self._command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip

    def finish(self, process: "subprocess.Popen[str]") -> dict[str, Any]:
        """Its summary. Exits where it failed."""
        try:
            said, told = process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()  # it has ended, unless this one was ended before
        if process.returncode != 0:
            sys.exit(f"reembed ended with {process.returncode}:\n{told}")
        return json.loads(said)

    def embedded(self) -> int:
        """How many parts the ledger has as embedded."""
        for ledger in self.state.glob("reembed/*/ledger.jsonl"):
            return ledger.read_bytes().count(b'"embedded"')
        return -1

    def letters(self) -> list[str]:
        """What the dead letters say, in order of their positions."""
        return sorted(line for file in self.state.glob("reembed/*/dead-letters.jsonl") for line in file.open())

    def switched(self) -> bool:
        """Whether the alias leads elsewhere; read from the file, since the store may be in use."""
        return json.loads((self.store / "meta.json").read_text())["aliases"][ALIAS] != "docs--of-old"

    def remains(self) -> list[str]:
        """Commands that still run and mention this job, or its Ray."""
        records = JobFolder(self.state.resolve(), str(self.store.resolve()), ALIAS).records
        mine = (str(self.state), str(self.store), str(RayPlan(None, 1, records).folder))
        return [command for pid in process_table() if any(word in (command := command_of(pid)) for word in mine)]


def records(store: Path) -> list[Any]:
    """Every point behind the alias, in the order of ids."""
    with closing(QdrantClient(path=str(store))) as client:
        return client.scroll(ALIAS, limit=10**6, with_payload=True, with_vectors=True)[0]


def least_cosine(ours: Sequence[Any], theirs: Sequence[Any]) -> float:
    """Of the vectors made anew. Exits where anything else differs."""
    if [record.id for record in ours] != [record.id for record in theirs]:
        sys.exit("the ids differ")
    least = 1.0
    for one, other in zip(ours, theirs, strict=True):
        if not same_payload(one.payload, other.payload):
            sys.exit(f"the payload of {one.id} differs: {one.payload} and {other.payload}")
        mine, wanted = _named(one.vector), _named(other.vector)
        if mine.get("picture") != wanted.get("picture"):
            sys.exit(f"the vector of {one.id} that is carried over differs")
        least = min(least, _cosine(mine[""], wanted[""]))
    return least


def _named(vector: Any) -> dict[str, list[float]]:
    """Vectors by name; of a point that has the unnamed one alone Qdrant gives just that."""
    return vector if isinstance(vector, dict) else {"": vector}


def killed(root: Path, source: Path, model: str, router: str, times: Iterator[float], kills: int) -> Iterator[Any]:
    """Yields Kills, and each Job that came to its end with its summary."""
    made, number = 0, 0
    while made < kills or number == 0:
        number += 1
        job = Job(root / f"job{number}", source, router, model)
        while True:
            process = job.start()
            if made < kills and _killed(process, after_s := next(times)):
                made += 1
                yield Kill(made, round(after_s, 2), job.embedded(), job.switched())
                continue
            yield job, job.finish(process)
            break


def _killed(process: "subprocess.Popen[str]", after_s: float) -> bool:
    """Kill it then; False if it had ended before."""
    try:
        process.wait(after_s)
    except subprocess.TimeoutExpired:
        return True
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    return False


def main() -> None:
    """Run, and print a table or JSON. Exits with a message where a collection is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--router", default=f"http://127.0.0.1:{Settings().port}")
    parser.add_argument("--model", default="embed")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--chunks", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that no run is left behind
    with tempfile.TemporaryDirectory(prefix="zooserve-kills-") as name:
        _report(asked, *_measured(asked, Path(name)))


def _measured(asked: argparse.Namespace, root: Path) -> tuple[dict[str, Any], list[Kill]]:
    source = root / "source"
    make_source(source, asked.chunks, asked.seed)
    undisturbed = Job(root / "undisturbed", source, asked.router, asked.model)
    began = time.monotonic()
    summary = undisturbed.finish(undisturbed.start())
    whole_s = time.monotonic() - began
    expected, letters = records(undisturbed.store), undisturbed.letters()
    if len(letters) != len(range(BAD_FIRST, asked.chunks, BAD_EVERY)):
        sys.exit(f"rows that are good are dead letters: {letters}")
    chance = random.Random(asked.seed)
    times = iter(lambda: chance.uniform(0, whole_s), None)
    kills: list[Kill] = []
    cosines: list[float] = []
    for event in killed(root, source, asked.model, asked.router, times, asked.kills):
        if isinstance(event, Kill):
            kills.append(event)
            continue
        job, said = event
        cosines.append(least_cosine(records(job.store), expected))
        if _without_job(job.letters()) != _without_job(letters):
            sys.exit("the dead letters differ")
        if said["points"] != summary["points"] or job.remains():
            sys.exit(f"counts differ or something is left: {said}, {job.remains()}")
    if min(cosines) < LEAST_COSINE:
        sys.exit(f"a vector has cosine {min(cosines)}")
    told = {
        "chunks": asked.chunks,
        "points": summary["points"],
        "dead": len(letters),
        "undisturbed_s": round(whole_s, 1),
    }
    return {**told, "jobs": len(cosines), "least_cosine": min(cosines)}, kills


def _without_job(letters: list[str]) -> list[str]:
    return [json.dumps(json.loads(line), sort_keys=True) for line in letters]


def _report(asked: argparse.Namespace, summary: dict[str, Any], kills: list[Kill]) -> None:
    if asked.json:
        print(json.dumps({**summary, "kills": [asdict(kill) for kill in kills]}))
        return
    print("| kill | after (s) | parts embedded by then | alias switched |\n|---|---|---|---|")
    for kill in kills:
        done = "no ledger yet" if kill.parts_embedded < 0 else kill.parts_embedded
        print(f"| {kill.number} | {kill.after_s:.1f} | {done} | {'yes' if kill.switched else 'no'} |")
    print(json.dumps(summary))


def _unit(chance: random.Random, size: int) -> list[float]:
    values = [chance.gauss(0, 1) for _ in range(size)]
    norm = math.hypot(*values)
    return [value / norm for value in values]


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    return math.fsum(left * right for left, right in zip(one, other, strict=True)) / (
        math.hypot(*one) * math.hypot(*other)
    )


if __name__ == "__main__":
    main()
