"""What qdrant-client's local mode can bear: milliseconds a search, memory and time of opening, by number of points.

    python benchmarks/qdrant_local.py [--points 1000 10000 20000]

Random unit vectors of 384 numbers with a payload of a passage's size, in a folder; no platform and no server. Each size
is filled and opened in processes of their own. `filtered` searches among a tenth of the points by a payload field,
before and after an index on it is asked for; the last line is what a second process is told that opens the folder.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from own_router import resident_mb
from qdrant_client import QdrantClient, models

DIMENSIONS = 384
PASSAGE = "what a passage of about a hundred and fifty tokens takes in a payload, word for word; " * 7
SEARCHES = 30
NAME = "bench"


def fill(folder: str, points: int) -> float:
    """Points per second of upserting, 256 at a time."""
    client = QdrantClient(path=folder)
    client.create_collection(NAME, vectors_config=models.VectorParams(size=DIMENSIONS, distance=models.Distance.COSINE))
    rng = np.random.default_rng(1)
    began = time.perf_counter()
    for start in range(0, points, 256):
        vectors = rng.normal(size=(min(256, points - start), DIMENSIONS)).tolist()
        client.upsert(
            NAME,
            [
                models.PointStruct(id=start + at, vector=vector, payload={"text": PASSAGE, "group": (start + at) % 10})
                for at, vector in enumerate(vectors)
            ],
        )
    taken = time.perf_counter() - began
    client.close()
    return points / taken


def search_ms(client: QdrantClient, condition: models.Filter | None = None) -> float:
    """The median of some searches for the ten nearest."""
    rng = np.random.default_rng(2)
    taken = []
    for _ in range(SEARCHES):
        query = rng.normal(size=DIMENSIONS).tolist()
        began = time.perf_counter()
        client.query_points(NAME, query=query, limit=10, query_filter=condition)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1000


def measure(folder: str) -> dict[str, float | str]:
    """Of a filled folder, opened here."""
    before = resident_mb(_own_pid())
    began = time.perf_counter()
    client = QdrantClient(path=folder)
    opened = time.perf_counter() - began
    grown = resident_mb(_own_pid()) - before
    tenth = models.Filter(must=[models.FieldCondition(key="group", match=models.MatchValue(value=3))])
    plain, filtered = search_ms(client), search_ms(client, tenth)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        client.create_payload_index(NAME, "group", models.PayloadSchemaType.INTEGER)
    indexed = search_ms(client, tenth)
    other = subprocess.run([sys.executable, __file__, "--open", folder], capture_output=True, text=True)
    client.close()
    return {
        "open_s": opened,
        "memory_mb": grown,
        "disk_mb": sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()) / 1e6,
        "search_ms": plain,
        "filtered_ms": filtered,
        "filtered_after_index_ms": indexed,
        "index": str(said[0].message) if said else "",
        "second_process": other.stderr.strip().splitlines()[-1][:200] if other.returncode else "opened",
    }


def _own_pid() -> int:
    return int(Path("/proc/self").resolve().name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, nargs="+", default=[1000, 10_000, 20_000])
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--open", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.open:
        QdrantClient(path=given.open).close()
        return
    if given.measure:
        print(json.dumps(measure(given.measure)))
        return
    print("| points | upsert, points/s | open, s | memory, MB | disk, MB | search, ms | filtered | after an index |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for points in given.points:
        with tempfile.TemporaryDirectory(prefix="zooserve-qdrant-") as folder:
            rate = fill(folder, points)
            said = subprocess.check_output([sys.executable, __file__, "--measure", folder], text=True)
        found = json.loads(said)
        print(
            f"| {points:,} | {rate:,.0f} | {found['open_s']:.1f} | {found['memory_mb']:.0f} | {found['disk_mb']:.0f} "
            f"| {found['search_ms']:.1f} | {found['filtered_ms']:.1f} | {found['filtered_after_index_ms']:.1f} |",
            flush=True,
        )
    print(f"\nAn index on a payload field: {found['index'] or 'nothing is said'}")
    print(f"A second process: {found['second_process']}")


if __name__ == "__main__":
    main()
