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
    """One kill: when, of which job, and how far that was then."""

    number: int
    job: int
    after_s: float
    said: str
    """The last line that the command had told; empty where none."""
    parts_embedded: int
    """Parts in the ledger; -1 where there was no ledger yet."""
    switched: bool


@dataclass
class Outcome:
    """What became of a job beside the undisturbed one's."""

    job: int
    points: int
    ids_equal: bool
    payloads_equal: bool
    carried_equal: bool
    """The vectors that are carried over."""
    letters_equal: bool
    least_cosine: float
    """Of the vectors made anew."""
    left_running: list[str]
    """Commands."""

    @property
    def is_right(self) -> bool:
        """Whether nothing differs."""
        equal = self.ids_equal and self.payloads_equal and self.carried_equal and self.letters_equal
        return equal and self.least_cosine >= LEAST_COSINE and not self.left_running


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


def compared(number: int, job: Job, expected: Sequence[Any], letters: list[str]) -> Outcome:
    """The job's collection and dead letters beside those of the undisturbed run."""
    ours = records(job.store)
    pairs = list(zip(ours, expected, strict=False))
    vectors = [(_named(one.vector), _named(other.vector)) for one, other in pairs]
    return Outcome(
        number,
        len(ours),
        ids_equal=[record.id for record in ours] == [record.id for record in expected],
        payloads_equal=all(same_payload(one.payload, other.payload) for one, other in pairs),
        carried_equal=all(one.get("picture") == other.get("picture") for one, other in vectors),
        letters_equal=_without_job(job.letters()) == _without_job(letters),
        least_cosine=min((_cosine(one[""], other[""]) for one, other in vectors), default=0.0),
        left_running=job.remains(),
    )


def _named(vector: Any) -> dict[str, list[float]]:
    """Vectors by name; of a point that has the unnamed one alone Qdrant gives just that."""
    return vector if isinstance(vector, dict) else {"": vector}


def killed(root: Path, source: Path, model: str, router: str, times: Iterator[float], kills: int) -> Iterator[Any]:
    """Yields Kills, and each Job with its number once it came to its end."""
    made, number = 0, 0
    while made < kills or number == 0:
        number += 1
        job = Job(root / f"job{number}", source, router, model)
        while True:
            process = job.start()
            if made < kills and (said := _killed(process, after_s := next(times))) is not None:
                made += 1
                yield Kill(made, number, round(after_s, 2), said, job.embedded(), job.switched())
                continue
            job.finish(process)
            yield number, job
            break


def _killed(process: "subprocess.Popen[str]", after_s: float) -> str | None:
    """Kill it then: the last line that it had told; None if it had ended before."""
    try:
        process.wait(after_s)
    except subprocess.TimeoutExpired:
        process.kill()
        _, told = process.communicate()
        return (told.splitlines() or [""])[-1]
    finally:
        process.kill()  # it has ended, unless this one is ended meanwhile
    return None


def main() -> None:
    """Run, and print tables or JSON. Exits with a message where a collection is not as it should be."""
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


def _measured(asked: argparse.Namespace, root: Path) -> tuple[dict[str, Any], list[Kill], list[Outcome]]:
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
    outcomes: list[Outcome] = []
    for event in killed(root, source, asked.model, asked.router, times, asked.kills):
        if isinstance(event, Kill):
            kills.append(event)
            continue
        number, job = event
        outcomes.append(compared(number, job, expected, letters))
    told = {
        "chunks": asked.chunks,
        "points": summary["points"],
        "dead": len(letters),
        "undisturbed_s": round(whole_s, 1),
        "jobs": len(outcomes),
        "least_cosine": min(outcome.least_cosine for outcome in outcomes),
    }
    return told, kills, outcomes


def _without_job(letters: list[str]) -> list[str]:
    return [json.dumps(json.loads(line), sort_keys=True) for line in letters]


def _report(asked: argparse.Namespace, summary: dict[str, Any], kills: list[Kill], outcomes: list[Outcome]) -> None:
    if asked.json:
        jobs = [asdict(outcome) for outcome in outcomes]
        print(json.dumps({**summary, "kills": [asdict(kill) for kill in kills], "outcomes": jobs}))
    else:
        print("\n".join([*_kills_told(kills), "", *_outcomes_told(outcomes), "", json.dumps(summary)]))
    wrong = [str(outcome.job) for outcome in outcomes if not outcome.is_right]
    sys.exit(f"not what an undisturbed run makes: job {', '.join(wrong)}" if wrong else 0)


def _kills_told(kills: list[Kill]) -> Iterator[str]:
    yield "| kill | of job | after (s) | at which point: it had just said | parts embedded | alias switched |"
    yield "|---|---|---|---|---|---|"
    for kill in kills:
        done = "no ledger yet" if kill.parts_embedded < 0 else kill.parts_embedded
        said = kill.said or "nothing yet"
        switched = _word(kill.switched)
        yield f"| {kill.number} | {kill.job} | {kill.after_s:.1f} | {said} | {done} | {switched} |"


def _outcomes_told(outcomes: list[Outcome]) -> Iterator[str]:
    yield "| job | points | ids equal | payloads equal | carried equal | letters equal | least cosine | left running |"
    yield "|---|---|---|---|---|---|---|---|"
    for each in outcomes:
        equal = (each.ids_equal, each.payloads_equal, each.carried_equal, each.letters_equal)
        words = " | ".join(map(_word, equal))
        yield f"| {each.job} | {each.points} | {words} | {each.least_cosine:.7f} | {len(each.left_running)} |"


def _word(is_so: bool) -> str:
    return "yes" if is_so else "no"


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
