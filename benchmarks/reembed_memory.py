"""The memory of a re-embedding while it runs: of the command, and of its Ray, by tenths of the rows.

The platform and Qdrant are stand-ins (reembed_standins.py) in processes of their own, which are not counted: what grows
must be the command's or Ray's. MiB are proportional set sizes, so that what processes share counts once.

    python benchmarks/reembed_memory.py [--rows 20000] [--workers 2] [--payload-bytes 200] [--json]
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from qdrant_client import QdrantClient, models

from zooserve.processes.identity import command_of, descendants, process_table
from zooserve.processes.ports import free_ports
from zooserve.sdk.index import Index

HERE = Path(__file__).parent
OLD = Index("00000000000000aa", "of_old", "1", 8)
SOURCE = "docs--of-old"
BATCH = 1000
LOOK_S = 0.25
ROLES = ("command", "workers", "raylet and store", "the rest of Ray")


@dataclass
class Look:
    """Memory at one moment."""

    seconds: float
    done: int
    """Rows."""
    mib: dict[str, float]
    """By role."""

    @property
    def whole_mib(self) -> float:
        """Of all together."""
        return sum(self.mib.values())


@contextmanager
def stand_in(what: str) -> Iterator[str]:
    """One in a process of its own; its address."""
    (port,) = free_ports(1)
    command = [sys.executable, str(HERE / "reembed_standins.py"), what, str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def fill(url: str, rows: int, payload_bytes: int) -> None:
    """The source, short texts, and an alias on it."""
    client = QdrantClient(url=url, check_compatibility=False, timeout=60)
    params = models.VectorParams(size=8, distance=models.Distance.COSINE)
    client.create_collection(SOURCE, vectors_config=params, metadata=OLD.metadata)
    for start in range(0, rows, BATCH):
        points = [
            models.PointStruct(
                id=number, vector=[1.0] * 8, payload={"text": f"Row {number}.", "more": "m" * payload_bytes}
            )
            for number in range(start, min(rows, start + BATCH))
        ]
        client.upsert(SOURCE, points)
    alias = models.CreateAlias(collection_name=SOURCE, alias_name="docs")
    client.update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])
    client.close()


def looked(began: float, process: int, state: Path) -> Look:
    """Now."""
    mib = dict.fromkeys(ROLES, 0.0)
    for pid in (process, *(each.pid for each in descendants([process], process_table()))):
        mib[_role(pid, process)] += _pss_mib(pid)
    return Look(time.monotonic() - began, _done(state), mib)


def _role(pid: int, process: int) -> str:
    command = command_of(pid)
    if pid == process:
        return "command"
    if command.startswith("ray::"):
        return "workers"
    return "raylet and store" if "raylet/raylet" in command.split(" ")[0] else "the rest of Ray"


def _pss_mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _done(state: Path) -> int:
    for ledger in state.glob("reembed/*/ledger.jsonl"):
        lines = ledger.read_bytes().splitlines(keepends=True)
        return sum(json.loads(line).get("embedded", 0) for line in lines if line.endswith(b"\n"))
    return 0


def measured(rows: int, workers: int, payload_bytes: int) -> tuple[list[Look], dict[str, object]]:
    """Looks at a run from its first part to its end, and the command's summary."""
    with stand_in("qdrant") as qdrant, stand_in("router") as router, tempfile.TemporaryDirectory() as folder:
        fill(qdrant, rows, payload_bytes)
        command = [
            sys.executable, "-m", "zooserve_cli", "reembed", "docs", "--to", "embed", "--qdrant", qdrant, "--router",
            router, "--workers", str(workers), "--json",
        ]  # fmt: skip
        environment = {**os.environ, "ZOOSERVE_STATE_DIR": folder}
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        began, looks = time.monotonic(), list[Look]()
        try:
            while process.poll() is None:
                looks.append(looked(began, process.pid, Path(folder)))
                time.sleep(LOOK_S)
        finally:
            process.send_signal(signal.SIGTERM)
            said, _ = process.communicate()
        if process.returncode:
            sys.exit(process.returncode)
        return [look for look in looks if look.done and look.whole_mib], json.loads(said)


def tenths(looks: list[Look], rows: int) -> Iterator[tuple[str, Look]]:
    """The last look before each tenth of the rows is done, and the last of all."""
    for tenth in range(1, 11):
        before = [look for look in looks if look.done <= rows * tenth // 10 and look.mib["workers"]]
        if before:
            yield f"{tenth * 10}%", before[-1]
    yield "end", looks[-1]


def main() -> None:
    """Run, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--payload-bytes", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    looks, summary = measured(asked.rows, asked.workers, asked.payload_bytes)
    if asked.json:
        print(json.dumps({"summary": summary, "looks": [asdict(look) for look in looks]}))
        return
    print(f"| done | rows | {' | '.join(f'{role} (MiB)' for role in ROLES)} |\n|---|---|{'---|' * len(ROLES)}")
    for name, look in tenths(looks, asked.rows):
        print(f"| {name} | {look.done:,} | {' | '.join(f'{look.mib[role]:.0f}' for role in ROLES)} |")
    most = {role: round(max(look.mib[role] for look in looks)) for role in ROLES}
    print(json.dumps({"most_mib": most, "points": summary["points"], "seconds": summary["seconds"]}))


if __name__ == "__main__":
    main()
