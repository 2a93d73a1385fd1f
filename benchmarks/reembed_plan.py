"""What re-embedding a large collection costs in time, from measured rates: which stage bounds it, on how many GPUs.

    python benchmarks/reembed_plan.py [--chunks 10000000] [--gpus 1 4 16] [--writers 1] [--json]

Reading, embedding and writing run side by side, so that the slowest of them sets the pace:

    hours = chunks / min(read, write, gpus * texts_per_s(length) * efficiency(gpus) * headroom) / 3600

Every figure that goes in is printed with where it comes from; each can be replaced on the command line.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise

__all__ = ["COMMITTED", "TUNED", "Assumptions", "Estimate", "estimate", "texts_per_s", "units_for"]

# One H200, 32 cores, fp32, `embed_bulk` with text in and vectors out, an interactive text every 20 ms beside it
# (recorded/bulk_gpu_h200.json). By tokens a text.
COMMITTED: Mapping[float, float] = {61: 4969.0, 126: 2674.0, 254: 1383.0}
"""As committed: one tokenizer instance, which is one core."""
TUNED: Mapping[float, float] = {61: 27604.0, 126: 16575.0, 254: 7896.0}
"""Twelve tokenizer instances and two of the encoder a GPU, requests of 16,384 tokens."""


@dataclass(frozen=True)
class Assumptions:
    """What an estimate rests on."""

    tokens_per_chunk: float = 154.0
    """Mean of 20,000 real passages cut as the demo cuts them (benchmarks/real_chunks.py)."""
    texts_per_s: Mapping[float, float] = field(default_factory=lambda: TUNED)
    """One GPU's rate by tokens a text, interactive traffic beside it; between two lengths the time of a text is drawn
    as a straight line, and beyond the longest it grows with the tokens."""
    loss_per_gpu: float = 0.01
    """Of each GPU beyond the first: two on one host did 1.72 to 2.06 times one. Beyond two it is assumed."""
    headroom: float = 0.8
    """Share of a GPU's bulk rate that is planned with: the rest is for peaks of interactive traffic and for retries."""
    read_per_s: float = 20_000.0
    """Chunks a second out of the source, assumed: scrolling in a Qdrant of the same network, without vectors."""
    write_per_s: float = 8_000.0
    """Points a second that one Qdrant node takes, assumed: 384 dimensions, batches, indexing deferred."""
    writers: int = 1
    """Qdrant nodes that share the collection's shards."""
    index_per_s: float = 10_000.0
    """Points a second that one node indexes (HNSW) once writing is over, assumed."""


@dataclass(frozen=True)
class Estimate:
    """One number of GPUs."""

    gpus: int
    embed_per_s: float
    pace_per_s: float
    """What the slowest stage lets through."""
    bound_by: str
    stream_hours: float
    """Reading, embedding and writing, side by side."""
    index_hours: float
    """What Qdrant needs afterwards until it searches at its usual speed."""

    @property
    def hours(self) -> float:
        """Until the alias may be switched."""
        return self.stream_hours + self.index_hours


def texts_per_s(tokens: float, measured: Mapping[float, float]) -> float:
    """One GPU's rate at this many tokens a text. Raises ValueError for no tokens, or nothing measured."""
    if tokens <= 0 or not measured:
        raise ValueError("a rate needs a length above 0 and at least one measurement")
    seconds = sorted((length, 1 / rate) for length, rate in measured.items())
    (shortest, quickest), (longest, slowest) = seconds[0], seconds[-1]
    if tokens <= shortest:
        return 1 / quickest  # no measurement says that a shorter text is quicker
    for (before, low), (after, high) in pairwise(seconds):
        if tokens <= after:
            return 1 / (low + (high - low) * (tokens - before) / (after - before))
    return longest / (slowest * tokens)


def estimate(chunks: int, gpus: int, given: Assumptions) -> Estimate:
    """How long `chunks` take on `gpus`. Raises ValueError for fewer than one of either, or a rate that is none."""
    if chunks < 1 or gpus < 1:
        raise ValueError("an estimate needs at least one chunk and one GPU")
    if min(given.read_per_s, given.write_per_s, given.index_per_s, given.headroom, given.writers) <= 0:
        raise ValueError("every rate, the headroom and the writers must be above 0")
    efficiency = max(0.0, 1 - given.loss_per_gpu * (gpus - 1))
    if efficiency <= 0:
        raise ValueError(f"{gpus} GPUs with a loss of {given.loss_per_gpu:.0%} each do nothing")
    embed = gpus * texts_per_s(given.tokens_per_chunk, given.texts_per_s) * efficiency * given.headroom
    stages = {"embedding": embed, "reading": given.read_per_s, "writing": given.write_per_s * given.writers}
    slowest = min(stages, key=lambda name: stages[name])
    pace = stages[slowest]
    index = chunks / (given.index_per_s * given.writers) / 3600
    return Estimate(gpus, embed, pace, slowest, chunks / pace / 3600, index)


def units_for(gpus: int, given: Assumptions) -> int:
    """Qdrant nodes at which writing no longer bounds so many GPUs."""
    embed = estimate(1, gpus, given).embed_per_s
    return max(1, -(-int(embed) // int(given.write_per_s)))


def table(chunks: int, gpus: Sequence[int], given: Assumptions) -> str:
    """Markdown: a line for each number of GPUs."""
    lines = [
        "| GPUs | embedding, texts/s | pace, texts/s | bound by | hours | with the index | Qdrant nodes to use them |",
        "|---|---|---|---|---|---|---|",
    ]
    for number in gpus:
        one = estimate(chunks, number, given)
        lines.append(
            f"| {number} | {one.embed_per_s:,.0f} | {one.pace_per_s:,.0f} | {one.bound_by} | {one.stream_hours:.2f} "
            f"| {one.hours:.2f} | {units_for(number, given)} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    fresh = Assumptions()
    parser.add_argument("--chunks", type=int, default=10_000_000)
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--committed", action="store_true", help="one tokenizer instance, as the repository has it")
    numbers = ("tokens_per_chunk", "loss_per_gpu", "headroom", "read_per_s", "write_per_s", "index_per_s")
    for name in numbers:
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, default=getattr(fresh, name))
    parser.add_argument("--writers", type=int, default=fresh.writers)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    given = Assumptions(
        **{name: getattr(options, name) for name in (*numbers, "writers")},
        texts_per_s=COMMITTED if options.committed else TUNED,
    )
    try:
        found = [estimate(options.chunks, number, given) for number in options.gpus]
    except ValueError as exc:
        parser.error(str(exc))
    if options.json:
        print(json.dumps({"assumptions": asdict(given), "estimates": [asdict(one) for one in found]}, indent=1))
        return
    print(f"{options.chunks:,} chunks of {given.tokens_per_chunk:.0f} tokens. Assumed:\n")
    print("\n".join(f"- {name}: {value}" for name, value in asdict(given).items()), "\n")
    print(table(options.chunks, options.gpus, given))


if __name__ == "__main__":
    main()
