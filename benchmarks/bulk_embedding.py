"""20,000 real passages through the SDK's `embed_stream`, beside raw ONNX Runtime over the same texts, round by round.

    python benchmarks/bulk_embedding.py [--count 20000] [--round 1000] [--raw-every 1] [--record FILE]

Against a platform that runs. Raw is a process of its own on the same file, cores and texts: tokenized there, sorted by
length, in batches of 32 padded to their own longest, with ONNX Runtime's default threads. In each round one of the two
runs while the other idles; which is first alternates. The client is this process: its resident memory is sampled all
along, and it keeps of the vectors only what it holds against raw's, some of each round. `--raw-every 4` compares every
fourth round and spares the machine the rest; all passages go through the SDK either way.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from cpu import budget_table, cpu_by_part, platform_records
from load import add_addresses
from own_router import resident_mb
from real_chunks import length_table, real_chunks, token_lengths
from throughput import RawEncoder

from zooserve import Zoo

CHECKED = 32
"""Vectors of each round that are held against raw's."""
_SAMPLE_S = 0.25


class Memory:
    """This process's resident megabytes, with how many texts were done at the time."""

    def __init__(self) -> None:
        self.done = 0
        self._samples: list[tuple[int, float]] = []
        self._over = threading.Event()

    @contextmanager
    def sampled(self) -> Iterator[None]:
        """While the block runs."""
        thread = threading.Thread(target=self._sample)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _sample(self) -> None:
        while not self._over.wait(_SAMPLE_S):
            self._samples.append((self.done, resident_mb(os.getpid())))

    def peak_mb(self, first: float, last: float) -> float:
        """The highest between these shares of the texts; of the nearest sample where none falls between."""
        between = [mb for done, mb in self._samples if first * self.done <= done <= last * self.done]
        return max(between, default=self._samples[-1][1])


@dataclass
class Rounds:
    """What each round measured."""

    sdk_per_s: list[float] = field(default_factory=list)
    raw_per_s: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    lowest_cosine: float = 1.0
    cpu: Counter[str] = field(default_factory=Counter)
    """CPU seconds of each part of the platform while the SDK's rounds ran."""
    sdk_s: float = 0.0


_raw: RawEncoder


def _open_raw() -> None:
    global _raw
    _raw = RawEncoder()
    _raw.embed(["warm"] * 64)


def _run_raw(texts: Sequence[str]) -> tuple[float, npt.NDArray[np.float32]]:
    """Texts per second, and the first vectors; in the process that `_open_raw` made ready."""
    began = time.perf_counter()
    vectors = _raw.embed(texts)
    return len(texts) / (time.perf_counter() - began), vectors[:CHECKED]


def run_sdk(zoo: Zoo, texts: Sequence[str], memory: Memory) -> tuple[float, npt.NDArray[np.float32]]:
    """The same through the bulk class."""
    began = time.perf_counter()
    first: list[npt.NDArray[np.float32]] = []
    kept = 0
    for made in zoo.embed_stream(texts, slo_class="bulk"):
        if kept < CHECKED:
            first.append(made.numpy()[: CHECKED - kept].copy())
            kept += len(first[-1])
        memory.done += len(made)
    return len(texts) / (time.perf_counter() - began), np.concatenate(first)


def compared(zoo: Zoo, texts: Sequence[str], memory: Memory, given: argparse.Namespace) -> Rounds:
    """All rounds, each printed when it is over."""
    rounds = Rounds()
    # Spawned: raw's memory and threads are its own.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=_open_raw) as raw, memory.sampled():
        raw.submit(_run_raw, texts[:CHECKED]).result()
        for number, start in enumerate(range(0, len(texts), given.round)):
            part = texts[start : start + given.round]
            order = ["sdk"] if number % given.raw_every else ["raw", "sdk"][:: 1 if number % 2 else -1]
            found = {}
            for path in order:
                if path == "raw":
                    found[path] = raw.submit(_run_raw, part).result()
                else:
                    found[path] = _counted(zoo, part, memory, rounds)
            _keep(rounds, found)
            rates = ", ".join(f"{path} {rate:.1f}/s" for path, (rate, _) in found.items())
            now = resident_mb(os.getpid())
            print(f"{memory.done:,} of {len(texts):,}: {rates}; client {now:.0f} MB", file=sys.stderr, flush=True)
    return rounds


def _counted(zoo: Zoo, part: Sequence[str], memory: Memory, rounds: Rounds) -> tuple[float, npt.NDArray[np.float32]]:
    """The SDK's share of a round, with the CPU that it cost each part of the platform and this process."""
    processes = platform_records()
    before, began = cpu_by_part(processes), time.perf_counter()
    found = run_sdk(zoo, part, memory)
    rounds.cpu += cpu_by_part(processes) - before
    rounds.sdk_s += time.perf_counter() - began
    return found


def _keep(rounds: Rounds, found: dict[str, tuple[float, npt.NDArray[np.float32]]]) -> None:
    rounds.sdk_per_s.append(found["sdk"][0])
    if "raw" in found:
        rounds.raw_per_s.append(found["raw"][0])
        rounds.ratios.append(found["sdk"][0] / found["raw"][0])
        cosines = (found["sdk"][1] * found["raw"][1]).sum(axis=1)
        rounds.lowest_cosine = min(rounds.lowest_cosine, float(cosines.min()))


@dataclass(frozen=True)
class Result:
    """What all rounds came to."""

    texts: int
    tokens: int
    rounds: int
    sdk_per_s: float
    raw_per_s: float
    ratio: float
    ratio_range: tuple[float, float]
    lowest_cosine: float
    first_quarter_peak_mb: float
    last_quarter_peak_mb: float

    def table(self) -> str:
        """Markdown."""
        low, high = self.ratio_range
        tokens = self.tokens / self.texts
        return (
            "| path | texts/s | tokens/s | of raw, median of rounds (range) |\n|---|---|---|---|\n"
            f"| raw ONNX Runtime | {self.raw_per_s:.1f} | {self.raw_per_s * tokens:,.0f} | 1 |\n"
            f"| SDK, bulk class | {self.sdk_per_s:.1f} | {self.sdk_per_s * tokens:,.0f} "
            f"| {self.ratio:.3f} ({low:.2f}..{high:.2f}) |\n\n"
            f"Client's resident memory, peak: first quarter {self.first_quarter_peak_mb:.1f} MB, last quarter "
            f"{self.last_quarter_peak_mb:.1f} MB. Lowest cosine to raw: {self.lowest_cosine:.7f}."
        )


def result(rounds: Rounds, memory: Memory, lengths: Sequence[int]) -> Result:
    """The figures of record: medians of the rounds."""
    return Result(
        texts=len(lengths),
        tokens=sum(lengths),
        rounds=len(rounds.ratios),
        sdk_per_s=statistics.median(rounds.sdk_per_s),
        raw_per_s=statistics.median(rounds.raw_per_s),
        ratio=statistics.median(rounds.ratios),
        ratio_range=(min(rounds.ratios), max(rounds.ratios)),
        lowest_cosine=rounds.lowest_cosine,
        first_quarter_peak_mb=memory.peak_mb(0, 0.25),
        last_quarter_peak_mb=memory.peak_mb(0.75, 1),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_addresses(parser)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--round", type=int, default=1000, help="texts of a round")
    parser.add_argument("--raw-every", type=int, default=1, help="raw in every round, or in each of so many")
    parser.add_argument("--record", type=Path, help="also write the figures here, as JSON")
    given = parser.parse_args()
    chunks = real_chunks(given.count)
    # In an order without any: neighbours come from one document, and are alike in length.
    texts = [chunks[place].text for place in np.random.default_rng(5).permutation(len(chunks))]
    lengths = token_lengths(texts)
    print(length_table(chunks, lengths), "\n", flush=True)
    memory = Memory()
    with Zoo(given.router, timeout_s=600) as zoo:
        rounds = compared(zoo, texts, memory, given)
    found = result(rounds, memory, lengths)
    print(found.table())
    print("\nCPU a text, with whatever else the platform did meanwhile:\n")
    print(budget_table(rounds.cpu, len(texts), rounds.sdk_s))
    if given.record:
        record = {**asdict(found), "each_round": vars(rounds)}
        given.record.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
