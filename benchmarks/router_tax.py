"""What the router adds to one embedding: through it against the same ensemble called directly, interleaved.

python benchmarks/router_tax.py --router http://127.0.0.1:8000 --zoo 127.0.0.1:8001
"""

import argparse
import asyncio
import json

from load import (
    Measured,
    add_addresses,
    direct_embed,
    embeddings_call,
    one_by_one,
    percentile,
    run_load,
    texts_of_words,
)


async def measure(router: str, zoo: str, count: int, seconds: float, rounds: int) -> dict[str, float]:
    """p50 at concurrency 1 (request by request) and requests/s at 32 (round by round), router and direct."""
    texts = texts_of_words(20, 256)
    through = [embeddings_call(router, text) for text in texts]
    direct = [direct_embed(zoo, text) for text in texts]
    paths = {"router": lambda i: through[i % 256], "direct": lambda i: direct[i % 256]}
    await one_by_one(paths, 30)
    alone = await one_by_one(paths, count)
    loads: dict[str, list[Measured]] = {"router": [], "direct": []}
    for _ in range(rounds):
        loads["direct"].append(await run_load(direct, 32, seconds))
        loads["router"].append(await run_load(through, 32, seconds))
    return {
        "router_p50_ms": percentile(alone["router"], 0.5) * 1000,
        "direct_p50_ms": percentile(alone["direct"], 0.5) * 1000,
        "router_p95_ms": percentile(alone["router"], 0.95) * 1000,
        "direct_p95_ms": percentile(alone["direct"], 0.95) * 1000,
        "router_per_s_at_32": sum(m.per_second for m in loads["router"]) / rounds,
        "direct_per_s_at_32": sum(m.per_second for m in loads["direct"]) / rounds,
        "failed": float(sum(m.failed for runs in loads.values() for m in runs)),
    }


def table(found: dict[str, float]) -> str:
    """The figures as a Markdown table."""
    tax = found["router_p50_ms"] - found["direct_p50_ms"]
    ratio = found["router_per_s_at_32"] / found["direct_per_s_at_32"]
    return "\n".join(
        [
            "| path | p50 at 1, ms | p95 at 1, ms | requests/s at 32 |",
            "|---|---|---|---|",
            *(
                f"| {name} | {found[f'{name}_p50_ms']:.2f} | {found[f'{name}_p95_ms']:.2f} "
                f"| {found[f'{name}_per_s_at_32']:.0f} |"
                for name in ("direct", "router")
            ),
            f"| **router tax** | **+{tax:.2f}** | | **x {ratio:.2f}** |",
            f"failed requests: {found['failed']:.0f}",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_addresses(parser)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = asyncio.run(measure(given.router, given.zoo, given.count, given.seconds, given.rounds))
    print(json.dumps(found) if given.json else table(found))


if __name__ == "__main__":
    main()
