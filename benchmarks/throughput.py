"""Embedding throughput at 64 single-text clients: router, ensemble called directly, raw ONNX Runtime, interleaved.

Raw ONNX Runtime runs in this process on the same file, texts and cores while the servers idle: sorted by length, in
batches of 32 padded to their own longest text, already tokenized, with its default threads. `per call` is Triton's own
statistic, before and after each round: requests that it handed to the encoder at once. `per run` counts rows per run of
ONNX Runtime: a call with texts of several buckets takes a run for each, and each core runs a slice of its own.

The second table says where the CPU went while the router was loaded, by process: from /proc, so it holds on a busy
machine too. What runs at a rate of its own (Ray, the supervisor, the leaf) costs a request the less the more there are.

    python benchmarks/throughput.py [--router URL --zoo HOST:PORT --zoo-metrics HOST:PORT]
"""

import argparse
import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from counters import Counts, counts
from cpu import budget_table, cpu_by_part, platform_records
from load import Call, add_addresses, direct_embed, embeddings_call, run_load, texts_of_words

from zooserve_ensembles.buckets import BUCKETS

REPOSITORY = Path(__file__).parents[1] / "model_repository/zoo"
BATCH = 32
TEXTS = 320

MIXES = {
    "one bucket (20 words)": [20],
    "mixed (8, 22, 45, 90, 180 words)": [8, 22, 45, 90, 180],
}


class RawEncoder:
    """ONNX Runtime with its defaults, nothing between it and the token ids."""

    def __init__(self) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        path = str(REPOSITORY / "embed_encoder/1/model.onnx")
        self._session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self._tokenizer = Tokenizer.from_file(str(REPOSITORY / "embed_tokenizer/1/tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(BUCKETS[-1])

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Their vectors in their order, tokenized here: as a careful script would, longest with longest."""
        rows = [encoded.ids for encoded in self._tokenizer.encode_batch_fast(list(texts))]
        order = sorted(range(len(rows)), key=lambda place: len(rows[place]))
        vectors = np.empty((len(rows), 384), np.float32)
        for start in range(0, len(order), BATCH):
            places = order[start : start + BATCH]
            ids, mask = _padded([rows[place] for place in places])
            (vectors[places],) = self._session.run(["sentence_embedding"], {"input_ids": ids, "attention_mask": mask})
        return vectors

    def texts_per_second(self, texts: Sequence[str], seconds: float) -> float:
        """Batches of the sorted texts in random order, each as often as the others, for about `seconds`."""
        rows = sorted((encoded.ids for encoded in self._tokenizer.encode_batch(list(texts))), key=len)
        batches = [_padded(rows[start : start + BATCH]) for start in range(0, len(rows), BATCH)]
        done, started = 0, time.perf_counter()
        while time.perf_counter() - started < seconds:
            for ids, mask in random.sample(batches, len(batches)):
                self._session.run(["sentence_embedding"], {"input_ids": ids, "attention_mask": mask})
                done += len(ids)
        return done / (time.perf_counter() - started)


def _padded(rows: Sequence[Sequence[int]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Ids and mask, as wide as the longest row."""
    mask = np.arange(max(map(len, rows))) < np.array([[len(row)] for row in rows])
    ids = np.zeros(mask.shape, np.int64)
    ids[mask] = [token for row in rows for token in row]
    return ids, mask.astype(np.int64)


@dataclass(frozen=True)
class Served:
    """One path under load, over all rounds."""

    per_s: float
    p95_ms: float
    rows_per_call: float
    rows_per_run: float
    failed: int


@dataclass(frozen=True)
class Compared:
    """One mix of lengths on every path."""

    mix: str
    raw_per_s: float
    direct: Served
    router: Served
    cpu: str
    """Where the CPU went on the way through the router, as a Markdown table."""


class Loaded:
    """Adds up what one path did, round by round."""

    def __init__(self, calls: Sequence[Call], given: argparse.Namespace) -> None:
        self._calls = calls
        self._given = given
        self._rates: list[float] = []
        self._latencies: list[float] = []
        self._moved = Counts()
        self._failed = 0
        self._cpu: Counter[str] = Counter()
        self._seconds = 0.0

    def round(self) -> None:
        """One more round of load."""
        given = self._given
        encoder = (given.zoo, given.zoo_metrics, "embed_encoder")
        before, cpu = counts(*encoder), cpu_by_part(given.processes)
        measured = asyncio.run(run_load(self._calls, given.concurrency, given.seconds))
        after = counts(*encoder)
        self._cpu += cpu_by_part(given.processes) - cpu
        self._seconds += measured.seconds
        self._moved = self._moved.plus(after.since(before))
        self._rates.append(measured.per_second)
        self._latencies += measured.latencies_s
        self._failed += measured.failed

    def cpu(self) -> str:
        """What each process took in all rounds."""
        return budget_table(self._cpu, len(self._latencies), self._seconds)

    def served(self) -> Served:
        """What all rounds came to."""
        p95_ms = float(np.quantile(self._latencies, 0.95)) * 1000
        moved = self._moved
        return Served(float(np.median(self._rates)), p95_ms, moved.rows_per_call, moved.rows_per_run, self._failed)


def compared(mix: str, lengths: list[int], raw: RawEncoder, given: argparse.Namespace) -> Compared:
    """Every path in every round, the medians of the rounds compared."""
    texts = [text for words in lengths for text in texts_of_words(words, TEXTS // len(lengths))]
    np.random.default_rng(3).shuffle(texts)
    direct = Loaded([direct_embed(given.zoo, text) for text in texts], given)
    router = Loaded([embeddings_call(given.router, text) for text in texts], given)
    bare = []
    for _ in range(given.rounds):
        bare.append(raw.texts_per_second(texts, given.seconds))
        direct.round()
        router.round()
    return Compared(mix, float(np.median(bare)), direct.served(), router.served(), router.cpu())


def table(rows: Sequence[Compared], concurrency: int) -> str:
    """The figures as a Markdown table."""
    lines = [
        f"{concurrency} single-text clients",
        "",
        "| texts | path | texts/s | of raw | p95, ms | rows per call | rows per run | failed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(f"| {row.mix} | raw ONNX Runtime | {row.raw_per_s:.0f} | 1 | | | {BATCH} | |")
        for name, served in (("ensemble directly", row.direct), ("through the router", row.router)):
            lines.append(
                f"| | {name} | {served.per_s:.0f} | {served.per_s / row.raw_per_s:.2f} | {served.p95_ms:.0f} "
                f"| {served.rows_per_call:.1f} | {served.rows_per_run:.1f} | {served.failed} |"
            )
    for row in rows:
        lines += ["", f"CPU through the router, {row.mix}", "", row.cpu]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_addresses(parser)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    given.processes = platform_records()
    raw = RawEncoder()
    rows = [compared(mix, lengths, raw, given) for mix, lengths in MIXES.items()]
    print(json.dumps([asdict(row) for row in rows]) if given.json else table(rows, given.concurrency))


if __name__ == "__main__":
    main()
