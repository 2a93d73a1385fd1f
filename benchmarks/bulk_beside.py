"""Interactive latency while passages stream through the bulk class: p95 of embed and rag_query, alone and beside.

    python benchmarks/bulk_beside.py [--rounds 3] [--seconds 15] [--beside COMMAND] [--record FILE]

Against a platform that runs. Beside is a process with the SDK's `embed_stream` over real passages, round and round;
with `--beside` any command that lasts for as long, such as a `zooserve reembed`. An interactive request is due at a
steady pace whatever became of those before, and its latency counts from then. Alone and beside alternate by rounds.
"""

import argparse
import asyncio
import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from load import Call, add_addresses, embeddings_call, percentile, steady, texts_of_words
from real_chunks import real_chunks
from slo_classes import AIM

from zooserve import Zoo

EVERY_S = 0.1
PASSAGES = 2000
_UNDER_WAY_S = 3.0
"""After its start a stream has its requests in flight; a command of another kind may need longer: --under-way."""


@dataclass
class Measured:
    """One kind of request, all rounds."""

    alone_s: list[float] = field(default_factory=list)
    beside_s: list[float] = field(default_factory=list)
    failed: int = 0

    def ratio(self) -> float:
        """p95 beside bulk, of p95 alone."""
        return percentile(self.beside_s, 0.95) / percentile(self.alone_s, 0.95)

    def row(self, name: str) -> str:
        """A line of the table."""
        alone, beside = (
            " / ".join(f"{percentile(taken, quantile) * 1000:.1f}" for quantile in (0.5, 0.95, 0.99))
            for taken in (self.alone_s, self.beside_s)
        )
        mark = "met" if self.ratio() <= AIM else "missed"
        return f"| {name} | {len(self.alone_s)} | {alone} | {beside} | {self.ratio():.2f} ({mark}) | {self.failed} |"


def interactive(router: str) -> Mapping[str, Sequence[Call]]:
    """Short texts, as queries are."""
    queries = texts_of_words(12, 256)
    headers = {"Content-Type": "application/json"}
    rag = [
        Call(f"{router}/v1/rag_query", json.dumps({"model": "rag_query", "input": text}).encode(), headers)
        for text in queries
    ]
    return {"embed": [embeddings_call(router, text) for text in queries], "rag_query": rag}


@contextmanager
def bulk_beside(command: Sequence[str], under_way_s: float) -> Iterator[Path]:
    """The command while the block runs, and the file that it prints to. Raises RuntimeError if it ended before."""
    with tempfile.TemporaryDirectory(prefix="zooserve-beside-") as folder:
        said = Path(folder) / "said"
        with said.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            time.sleep(under_way_s)
            yield said
            if process.poll() is not None:
                raise RuntimeError(f"it did not last: {said.read_text(errors='replace')[-1000:]}")
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)


def stream(router: str) -> None:
    """Passages without end; a line with how many a second, now and then."""
    passages = [chunk.text for chunk in real_chunks(PASSAGES)]
    with Zoo(router, timeout_s=600) as zoo:
        began, done = time.perf_counter(), 0
        for made in zoo.embed_stream(itertools.cycle(passages), slo_class="bulk"):
            done += len(made)
            print(f"{done / (time.perf_counter() - began):.1f}", flush=True)


def measure(given: argparse.Namespace) -> tuple[dict[str, Measured], list[str]]:
    """All rounds, each said when it is over; with the last line that each command printed."""
    calls = interactive(given.router)
    found = {name: Measured() for name in calls}
    command = shlex.split(given.beside) if given.beside else [sys.executable, __file__, "--stream", given.router]
    said = []
    real_chunks(PASSAGES)  # cut now, not while somebody is measured
    for name in calls:
        asyncio.run(steady(calls[name], EVERY_S, 2))
    for number in range(given.rounds):
        for name, one in found.items():
            alone = asyncio.run(steady(calls[name], EVERY_S, given.seconds))
            with bulk_beside(command, given.under_way) as file:
                beside = asyncio.run(steady(calls[name], EVERY_S, given.seconds))
                lines = file.read_text(errors="replace").split()
                said.append(lines[-1] if lines else "")
            one.alone_s += alone.latencies_s
            one.beside_s += beside.latencies_s
            one.failed += alone.failed + beside.failed
            print(f"round {number + 1}, {name}: x {one.ratio():.2f} so far", file=sys.stderr, flush=True)
    return found, said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_addresses(parser, needed=False)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each measurement")
    parser.add_argument("--beside", help="a command to run instead of the stream")
    parser.add_argument("--under-way", type=float, default=_UNDER_WAY_S, help="seconds until it loads the platform")
    parser.add_argument("--record", type=Path, help="also write the figures here, as JSON")
    parser.add_argument("--stream", metavar="ROUTER", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.stream:
        stream(given.stream)
        return
    if given.router is None:
        parser.error("no platform runs: `zooserve up`, or name one with --router")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that no stream is left behind
    found, said = measure(given)
    print(f"\nAn interactive request every {EVERY_S * 1000:.0f} ms; milliseconds, p50 / p95 / p99.\n")
    print("| request | each | alone | beside bulk | p95, of alone | failed |\n|---|---|---|---|---|---|")
    for name, one in found.items():
        print(one.row(name))
    print(f"\nAim: p95 beside bulk at most {AIM} x alone. Beside it, at the end of each round: {', '.join(said)}")
    if given.record:
        record = {name: {**vars(one), "ratio": one.ratio()} for name, one in found.items()}
        given.record.write_text(json.dumps({"measured": record, "beside": said}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
