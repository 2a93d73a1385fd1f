"""Does bulk leave interactive alone? Latency of paced interactive requests, idle and beside bulk.

    python benchmarks/slo_classes.py [--short] [--only platform|arrangements]

First through the platform that runs, for embed and rerank: idle; with bulk saturating its own models; with the same
bulk sent as interactive, which is what one queue for all does. Then, on a Triton of its own, the arrangements that the
committed one was chosen from: how nice the bulk stubs are, how much one run of theirs holds, how many rows they batch,
and Triton's rate limiter with priorities instead. An interactive request is due at a steady pace whatever became
of those before; latency counts from then. Everything alternates, round by round.
"""

import argparse
import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from load import (
    Call,
    Measured,
    add_addresses,
    direct_embed,
    embeddings_call,
    percentile,
    rerank_call,
    run_load,
    steady,
    texts_of_words,
)
from own_triton import Config, Copy, Edit, OwnTriton, own_triton, parameter, renamed_steps

AIM = 1.5
EVERY_S = {"embed": 0.05, "rerank": 0.25}
"""About a tenth of the machine each: a rerank request brings its query and four documents."""
BULK_CLIENTS = 6
BULK_TEXTS, BULK_WORDS = 64, 40
CHUNK_TEXTS = 32
"""2,048 tokens in the bucket of 64: what the router sends at once as bulk."""
SHORT_TEXTS = texts_of_words(20, 512)
BULK = texts_of_words(BULK_WORDS, 1024, seed=11)


@dataclass
class Scenario:
    """What happens beside the interactive requests, and what all its rounds measured."""

    bulk: Sequence[Call] = ()
    texts_per_call: int = 0
    latencies_s: list[float] = field(default_factory=list)
    texts_per_s: list[float] = field(default_factory=list)
    failed: int = 0

    def add(self, interactive: Measured, bulk: Measured | None) -> None:
        """One round."""
        self.latencies_s += interactive.latencies_s
        self.failed += interactive.failed + (bulk.failed if bulk else 0)
        if bulk:
            self.texts_per_s.append(bulk.per_second * self.texts_per_call)

    def ms(self, quantile: float) -> float:
        """A latency percentile; not a number where nothing was answered."""
        return percentile(self.latencies_s, quantile) * 1000 if self.latencies_s else math.nan


@dataclass(frozen=True)
class Arrangement:
    """How the bulk twin shares the cores."""

    niceness: int = 10
    run_elements: int = 512
    rows: int = 64
    priority: int | None = None
    """Under the rate limiter; None runs without it."""

    @property
    def name(self) -> str:
        """For the table."""
        limiter = "" if self.priority is None else ", rate limiter"
        return f"nice {self.niceness}, runs of {self.run_elements} tokens, batches of {self.rows}{limiter}"

    def encoder(self, config: Config) -> None:
        """The bulk encoder's configuration in this arrangement."""
        parameter(config, "niceness", str(self.niceness))
        parameter(config, "run_elements", str(self.run_elements))
        config.max_batch_size = self.rows
        self.limited(config, self.priority)

    @staticmethod
    def limited(config: Config, priority: int | None) -> None:
        """One token for both encoders: whoever holds it runs, the more important waits first in line."""
        if priority is not None:
            limiter = config.instance_group[0].rate_limiter
            limiter.priority = priority
            limiter.resources.add(name="cores", count=1)
            setattr(limiter.resources[0], "global", True)

    def tokenizer(self, config: Config) -> None:
        """The bulk tokenizer's."""
        parameter(config, "niceness", str(self.niceness))


FREE = (
    Arrangement(niceness=0),
    Arrangement(niceness=0, run_elements=4096),
    Arrangement(),
    Arrangement(run_elements=2048),
    Arrangement(rows=CHUNK_TEXTS),
    Arrangement(niceness=19),
    Arrangement(niceness=19, run_elements=2048),
    Arrangement(niceness=20),
    Arrangement(niceness=20, run_elements=2048),
)
LIMITED = (Arrangement(niceness=0, priority=10), Arrangement(niceness=0, run_elements=256, priority=10))


async def round_of(
    scenarios: Mapping[str, Scenario], interactive: Sequence[Call], every_s: float, seconds: float
) -> None:
    """Each scenario once; bulk is under way before the first interactive request is due, and outlasts the last."""
    for scenario in scenarios.values():
        if not scenario.bulk:
            scenario.add(await steady(interactive, every_s, seconds), None)
            continue
        bulk = asyncio.create_task(run_load(scenario.bulk, BULK_CLIENTS, seconds + 1))
        await asyncio.sleep(0.7)
        latencies = await steady(interactive, every_s, seconds)
        scenario.add(latencies, await bulk)


def platform_scenarios(router: str, task: str) -> tuple[Sequence[Call], dict[str, Scenario]]:
    """The interactive calls of a task, and the three scenarios."""
    lists = [BULK[start : start + BULK_TEXTS] for start in range(0, len(BULK), BULK_TEXTS)]

    def bulk(slo_class: str) -> list[Call]:
        if task == "embed":
            return [embeddings_call(router, *texts, slo_class=slo_class) for texts in lists]
        return [rerank_call(router, "which document answers", texts, slo_class) for texts in lists]

    if task == "embed":
        interactive = [embeddings_call(router, text) for text in SHORT_TEXTS]
    else:
        interactive = [rerank_call(router, text, SHORT_TEXTS[:4]) for text in SHORT_TEXTS]
    return interactive, {
        "idle": Scenario(),
        "bulk through its own model": Scenario(bulk("bulk"), BULK_TEXTS),
        "bulk through the interactive model": Scenario(bulk("interactive"), BULK_TEXTS),
    }


async def platform(router: str, rounds: int, seconds: float) -> None:
    """The first table."""
    for task, every_s in EVERY_S.items():
        interactive, scenarios = platform_scenarios(router, task)
        await steady(interactive, every_s, 2)
        for _ in range(rounds):
            await round_of(scenarios, interactive, every_s, seconds)
        print(table(f"{task}, through the router", every_s, scenarios), flush=True)


async def arrangements(given: argparse.Namespace) -> None:
    """The second table, in two servers: the rate limiter is a switch of the whole server."""
    free = FREE[::2] if given.short else FREE
    with own_triton([*_interactive(), *(copy for at, one in enumerate(free) for copy in _twin(at, one))]) as triton:
        found = await _compared(triton, free, given)
    limited = [
        *_interactive(lambda config: Arrangement.limited(config, 1)),
        *(copy for at, one in enumerate(LIMITED) for copy in _twin(at, one)),
    ]
    with own_triton(limited, "--rate-limit=execution_count") as triton:
        found |= {
            ("idle, rate limiter" if name == "idle" else name): one
            for name, one in (await _compared(triton, LIMITED, given)).items()
        }
    print(table("embed, ensembles called directly, by how bulk is arranged", EVERY_S["embed"], found), flush=True)


def _interactive(edit: Edit = lambda config: None) -> list[Copy]:
    return [Copy("embed_tokenizer"), Copy("embed_encoder", edit=edit), Copy("embed")]


def _twin(number: int, arrangement: Arrangement) -> list[Copy]:
    tokenizer, encoder, whole = (f"bulk{number}{stage}" for stage in ("_tokenizer", "_encoder", ""))

    def ensemble(config: Config) -> None:
        renamed_steps({"embed_bulk_tokenizer": tokenizer, "embed_bulk_encoder": encoder})(config)
        config.max_batch_size = arrangement.rows

    return [
        Copy("embed_bulk_tokenizer", tokenizer, arrangement.tokenizer),
        Copy("embed_bulk_encoder", encoder, arrangement.encoder),
        Copy("embed_bulk", whole, ensemble),
    ]


async def _compared(triton: OwnTriton, chosen: Sequence[Arrangement], given: argparse.Namespace) -> dict[str, Scenario]:
    chunks = [BULK[start : start + CHUNK_TEXTS] for start in range(0, len(BULK), CHUNK_TEXTS)]
    scenarios = {"idle": Scenario()}
    for number, arrangement in enumerate(chosen):
        calls = [direct_embed(triton.http, *texts, model=f"bulk{number}") for texts in chunks]
        scenarios[arrangement.name] = Scenario(calls, CHUNK_TEXTS)
    interactive = [direct_embed(triton.http, text) for text in SHORT_TEXTS]
    await steady(interactive, EVERY_S["embed"], 2)
    for _ in range(given.rounds):
        await round_of(scenarios, interactive, EVERY_S["embed"], given.arrangement_seconds)
    return scenarios


def table(title: str, every_s: float, scenarios: Mapping[str, Scenario]) -> str:
    """Markdown; each p95 beside the idle one above it."""
    lines = [
        f"\n{title}: an interactive request every {every_s * 1000:.0f} ms, {BULK_CLIENTS} bulk clients",
        "",
        "| beside it | p50, ms | p95, ms | p99, ms | p95 / idle | bulk texts/s | failed |",
        "|---|---|---|---|---|---|---|",
    ]
    idle = 1.0
    for name, one in scenarios.items():
        idle = one.ms(0.95) if not one.bulk else idle
        bulk = f"{sum(one.texts_per_s) / len(one.texts_per_s):.0f}" if one.texts_per_s else ""
        ratio = one.ms(0.95) / idle
        mark = "" if not one.bulk else " (met)" if ratio <= AIM else " (missed)"
        lines.append(
            f"| {name} | {one.ms(0.5):.1f} | {one.ms(0.95):.1f} | {one.ms(0.99):.1f} | {ratio:.2f}{mark} "
            f"| {bulk} | {one.failed} |"
        )
    return "\n".join([*lines, f"\nAim: p95 beside bulk at most {AIM} x idle."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_addresses(parser, needed=False)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0, help="of a round of a scenario")
    parser.add_argument("--arrangement-seconds", type=float, default=5.0, help="of a round of an arrangement")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", choices=["platform", "arrangements"])
    given = parser.parse_args()
    if given.short:
        given.rounds, given.seconds, given.arrangement_seconds = 1, 2.0, 2.0
    if given.router is None and given.only != "arrangements":
        parser.error("no platform runs: `zooserve up`, or name one with --router, or --only arrangements")
    if given.only != "arrangements":
        asyncio.run(platform(given.router, given.rounds, given.seconds))
    if given.only != "platform":
        asyncio.run(arrangements(given))


if __name__ == "__main__":
    main()
