"""Does batching batch, and what does it cost? The encoder's batcher arranged in several ways, from 1 to 128 clients.

    python benchmarks/batching.py [--short]

Copies of `embed` in a Triton of its own, one per arrangement, called directly with texts of mixed lengths; all share
the tokenizer. Per arrangement and concurrency: rows that Triton handed over at once (`per call`) and that ONNX Runtime
ran at once (`per run`: a call with several buckets takes a run for each, and slices run side by side), tokens run per
token of text (`padding`), texts/s and p95. The arrangements alternate within each concurrency, round by round.
"""

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice

import numpy as np
from counters import Counts, counts
from load import Call, Measured, direct_embed, percentile, run_load, texts_of_words
from own_triton import ZOO, Config, Copy, Edit, OwnTriton, own_triton, parameter, renamed_steps

from zooserve_ensembles.buckets import bucket_for

CONCURRENCIES = (1, 4, 16, 64, 128)
WORDS = (8, 22, 45, 90, 180)
TEXTS = 64
"""Of each length."""
CLOSE = 0.97
"""Arrangements whose throughput is this near the best are equal: the quicker one for a single client is chosen."""


@dataclass
class Cell:
    """One arrangement at one concurrency, over all rounds."""

    counts: Counts = field(default_factory=Counts)
    rates: list[float] = field(default_factory=list)
    latencies_s: list[float] = field(default_factory=list)
    tokens: int = 0
    """Of the texts themselves."""
    failed: int = 0

    def add(self, measured: Measured, counts: Counts, tokens: int) -> None:
        """One round."""
        self.counts = self.counts.plus(counts)
        self.tokens += tokens
        self.rates.append(measured.per_second)
        self.latencies_s += measured.latencies_s
        self.failed += measured.failed

    @property
    def per_s(self) -> float:
        """Texts per second, the median of the rounds."""
        return float(np.median(self.rates))


def unbatched(config: Config) -> None:
    """No dynamic batching: each request by itself."""
    config.ClearField("dynamic_batching")


def window(microseconds: int, preferred: Sequence[int] = ()) -> Edit:
    """A batch waits for as long for others to join, or until one of these sizes is there."""

    def edit(config: Config) -> None:
        config.dynamic_batching.max_queue_delay_microseconds = microseconds
        config.dynamic_batching.preferred_batch_size.extend(preferred)

    return edit


def untrimmed(config: Config) -> None:
    """As committed, but whole buckets are run and slices one after the other."""
    parameter(config, "mask_input", None)
    parameter(config, "side_by_side", None)


ARRANGEMENTS: Mapping[str, Edit] = {
    "no dynamic batching": unbatched,
    "window 0": lambda config: None,
    "window 0.5 ms": window(500),
    "window 2 ms": window(2_000),
    "window 50 ms": window(50_000),
    "window 2 ms, preferred 8, 16, 32": window(2_000, (8, 16, 32)),
    "window 50 ms, preferred 8, 16, 32": window(50_000, (8, 16, 32)),
    "window 0, whole buckets, one run at a time": untrimmed,
}
SHORT = ("no dynamic batching", "window 0", "window 2 ms")


def copies(names: Sequence[str]) -> list[Copy]:
    """One tokenizer, and an encoder and an ensemble for each arrangement."""
    made = [Copy("embed_tokenizer")]
    for number, name in enumerate(names):
        made.append(Copy("embed_encoder", f"encoder{number}", ARRANGEMENTS[name]))
        made.append(Copy("embed", f"embed{number}", renamed_steps({"embed_encoder": f"encoder{number}"})))
    return made


def mixed_texts() -> list[str]:
    """Texts of all lengths in a fixed random order."""
    texts = [text for words in WORDS for text in texts_of_words(words, TEXTS)]
    np.random.default_rng(3).shuffle(texts)
    return texts


def tokens_of(texts: Sequence[str]) -> list[int]:
    """The tokens of each, as the tokenizer stage counts them."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(ZOO / "embed_tokenizer/1/tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    return [len(encoded) for encoded in tokenizer.encode_batch_fast(list(texts))]


def sweep(names: Sequence[str], concurrencies: Sequence[int], rounds: int, seconds: float) -> None:
    """Measure and print, concurrency by concurrency."""
    texts = mixed_texts()
    lengths = tokens_of(texts)
    buckets = sum(map(bucket_for, lengths)) / sum(lengths)
    print(
        f"Texts of {', '.join(map(str, WORDS))} words alike often, {np.mean(lengths):.0f} tokens on average; "
        f"padded to buckets one by one they are {buckets:.2f} x that.\n"
    )
    with own_triton(copies(names)) as triton:
        calls = [[direct_embed(triton.http, text, model=f"embed{at}") for text in texts] for at in range(len(names))]
        for one in calls:
            asyncio.run(run_load(one, 8, 1))
        found: dict[int, dict[str, Cell]] = {}
        for concurrency in concurrencies:
            found[concurrency] = {name: Cell() for name in names}
            for _ in range(rounds):
                for number, name in enumerate(names):
                    measured, moved = one_round(triton, number, calls[number], concurrency, seconds)
                    # A round sends the texts in order from the first one on.
                    tokens = sum(islice(cycle(lengths), moved.rows))
                    found[concurrency][name].add(measured, moved, tokens)
            print(table(concurrency, found[concurrency]), flush=True)
    print(choice(found))


def one_round(
    triton: OwnTriton, number: int, calls: Sequence[Call], concurrency: int, seconds: float
) -> tuple[Measured, Counts]:
    """What one arrangement did in one round."""
    encoder = (triton.http, triton.metrics, f"encoder{number}")
    before = counts(*encoder)
    measured = asyncio.run(run_load(calls, concurrency, seconds))
    return measured, counts(*encoder).since(before)


def table(concurrency: int, cells: Mapping[str, Cell]) -> str:
    """One concurrency as a Markdown table."""
    lines = [
        f"{concurrency} clients",
        "",
        "| batcher | rows per call | rows per run | padding | texts/s | p50, ms | p95, ms | failed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, cell in cells.items():
        moved = cell.counts
        lines.append(
            f"| {name} | {moved.rows_per_call:.1f} | {moved.rows_per_run:.1f} "
            f"| {moved.elements / max(1, cell.tokens):.2f} | {cell.per_s:.1f} "
            f"| {percentile(cell.latencies_s, 0.5) * 1000:.1f} | {percentile(cell.latencies_s, 0.95) * 1000:.1f} "
            f"| {cell.failed} |"
        )
    return "\n".join([*lines, ""])


def choice(found: Mapping[int, Mapping[str, Cell]]) -> str:
    """Of those that are as good as the best in throughput, summed over the loaded concurrencies, the quickest alone."""
    alone, *loaded = sorted(found)
    names = list(found[alone])
    shares = {
        name: np.mean([found[n][name].per_s / max(cell.per_s for cell in found[n].values()) for n in loaded])
        for name in names
    }
    best = max(shares.values())
    equal = [name for name in names if shares[name] >= CLOSE * best]
    chosen = min(equal, key=lambda name: percentile(found[alone][name].latencies_s, 0.5))
    listed = "; ".join(f"{name}: {share:.2f}" for name, share in shares.items())
    return (
        f"Throughput against the best of its concurrency, averaged from {loaded[0]} clients on: {listed}.\n\n"
        f"Within {1 - CLOSE:.0%} of the best: {', '.join(equal)}. Quickest of them for one client: **{chosen}**."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a round of an arrangement")
    parser.add_argument("--short", action="store_true")
    given = parser.parse_args()
    if given.short:
        sweep(SHORT, (1, 64), 1, 2.0)
    else:
        sweep(list(ARRANGEMENTS), CONCURRENCIES, given.rounds, given.seconds)


if __name__ == "__main__":
    main()
