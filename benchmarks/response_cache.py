"""Does a response cache pay? Hits against misses, what a miss costs more, memory, and hits under a Zipf mix of texts.

    python benchmarks/response_cache.py [--short]

`embed` called directly in Tritons of its own: without a cache, and with Triton's local one behind the tokenizer, the
encoder or both. First texts never seen before and one text again and again, request by request; CPU milliseconds are of
the whole server, stubs included. Then a thousand texts by Zipf's law (the n-th most frequent 1/n as often) against
caches of several sizes.
"""

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import httpx
import numpy as np
from load import Call, direct_embed, one_by_one, percentile, run_load, texts_of_words
from own_triton import Config, Copy, OwnTriton, own_triton

STAGES = ("embed_tokenizer", "embed_encoder")
SIZE_BYTES = 32 * 2**20
"""What the table of hits and misses is measured with."""
SIZES_KB = (256, 1024, 4096, 32768)
DISTINCT = 2000
WORDS = 20


@dataclass(frozen=True)
class Cost:
    """One kind of request, one by one."""

    p50_ms: float
    p95_ms: float
    cpu_ms: float


def cached(stages: Sequence[str]) -> list[Copy]:
    """`embed` with the cache switched on for these stages alone."""

    def switch(config: Config) -> None:
        config.response_cache.enable = config.name in stages
        # Warm-up requests would fill the cache.
        del config.model_warmup[:]

    return [*(Copy(stage, edit=switch) for stage in STAGES), Copy("embed")]


def cost(triton: OwnTriton, calls: Sequence[Call]) -> Cost:
    """Send each once, in order."""
    before = triton.cpu_s()
    taken = asyncio.run(one_by_one({"embed": lambda index: calls[index]}, len(calls)))["embed"]
    spent = triton.cpu_s() - before
    return Cost(percentile(taken, 0.5) * 1000, percentile(taken, 0.95) * 1000, 1000 * spent / len(calls))


def hits_and_misses(count: int) -> str:
    """The first table."""
    lines = [
        "| cache behind | a text | p50, ms | p95, ms | CPU ms per request |",
        "|---|---|---|---|---|",
    ]
    for stages in ((), ("embed_tokenizer",), ("embed_encoder",), STAGES):
        name = " and ".join(stage.removeprefix("embed_") for stage in stages) or "nothing"
        arguments = [f"--cache-config=local,size={SIZE_BYTES}"] if stages else []
        with own_triton(cached(stages), *arguments) as triton:
            texts = [f"{number} {text}" for number, text in enumerate(texts_of_words(WORDS, 2 * count + 40))]
            cost(triton, [direct_embed(triton.http, text) for text in texts[2 * count :]])
            new = cost(triton, [direct_embed(triton.http, text) for text in texts[:count]])
            again = cost(triton, [direct_embed(triton.http, texts[0])] * count)
        for kind, found in (("never seen", new), ("seen before", again)):
            lines.append(f"| {name} | {kind} | {found.p50_ms:.2f} | {found.p95_ms:.2f} | {found.cpu_ms:.2f} |")
    return "\n".join(lines)


def zipf(seconds: float, sizes_kb: Sequence[int], concurrency: int = 16) -> str:
    """The second table."""
    texts = texts_of_words(WORDS, DISTINCT)
    weights = 1 / np.arange(1, DISTINCT + 1)
    order = np.random.default_rng(5).choice(DISTINCT, size=20_000, p=weights / weights.sum())
    lines = [
        f"{DISTINCT} texts of {WORDS} words by Zipf's law, {concurrency} clients, cache behind both stages",
        "",
        "| cache, kB | requests/s | p50, ms | encoder hits | entries | full | evictions | server, MB | failed |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for size_kb in (0, *sizes_kb):
        arguments = [f"--cache-config=local,size={size_kb * 1024}"] if size_kb else []
        with own_triton(cached(STAGES if size_kb else ()), *arguments) as triton:
            calls = [direct_embed(triton.http, texts[number]) for number in order]
            loaded = asyncio.run(run_load(calls, concurrency, seconds))
            found = cache_metrics(triton)
            hits, misses = found.get("hits", 0.0), found.get("misses", 0.0)
            share = f"{hits / (hits + misses):.0%}" if hits + misses else ""
            lines.append(
                f"| {size_kb} | {loaded.per_second:.0f} | {loaded.ms(0.5):.1f} | {share} "
                f"| {found.get('entries', 0):.0f} | {found.get('util', 0):.0%} | {found.get('evictions', 0):.0f} "
                f"| {triton.memory_mb():.0f} | {loaded.failed} |"
            )
    return "\n".join(lines)


def cache_metrics(triton: OwnTriton) -> dict[str, float]:
    """Triton's own, and the encoder's hits and misses."""
    wanted = {
        'nv_cache_num_hits_per_model{model="embed_encoder",version="1"}': "hits",
        'nv_cache_num_misses_per_model{model="embed_encoder",version="1"}': "misses",
        "nv_cache_num_entries": "entries",
        "nv_cache_util": "util",
        "nv_cache_num_evictions": "evictions",
    }
    page = httpx.get(f"http://{triton.metrics}/metrics").text
    pairs = (line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    return {wanted[name]: float(value) for name, value in pairs if name in wanted}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300, help="requests of each kind, one by one")
    parser.add_argument("--seconds", type=float, default=12.0, help="of load for each size of the cache")
    parser.add_argument("--short", action="store_true")
    given = parser.parse_args()
    if given.short:
        given.count, given.seconds = 50, 3.0
    print(hits_and_misses(given.count), flush=True)
    print()
    print(zipf(given.seconds, SIZES_KB[1:2] if given.short else SIZES_KB))


if __name__ == "__main__":
    main()
