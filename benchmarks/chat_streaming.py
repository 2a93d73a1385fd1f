"""Streaming through the router against the engine's own server: time to first token, and tokens a second.

    python benchmarks/chat_streaming.py [--json]

leaf    Triton's own gRPC stream, with the tensors that the router would send, against /v1/chat/completions through the
        whole platform: HAProxy, Ray Serve, the router, that same Triton.
engine  llama.cpp's own HTTP server, asked as any client asks it, against the same server through the router.

The sides take turns within one run, block by block, the first of a pair of blocks changing: at concurrency 1 a block
is one question, at 16 two for each client (each engine must have 16 slots: `run.py` starts a platform where it has).
Every question begins with words of its own and is asked once, so that both sides prefill all of it but the system
prompt; the sides' questions have the same form and length. Answers are greedy and may end early: what is counted are
tokens that came. Direct clients of the leaf get their prompts rendered for nothing. The questions are short on purpose:
whatever the router adds weighs most beside a short prefill.
"""

import argparse
import asyncio
import itertools
import json
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any

from chat_judging import percentile_by_rank
from chat_prompts import chat_models, greedy_generation
from chat_streams import EventClient, Heard, LeafClient, StreamClient, closed_loop, distinct_questions
from cpu import cpu_by_part, platform_records

from zooserve.engine.orders import EngineOrders
from zooserve.processes.state import PlatformState, StateFolder
from zooserve.settings import Settings
from zooserve_router.chat.models import ChatModel
from zooserve_router.chat.tokens import ChatTokenizer

MOST_FIRST = 1.05
LEAST_RATE = 0.97
RESAMPLED = 1000
LEAST_SHOWN_US = 5


@dataclass
class Side:
    """What one way of asking gave."""

    heard: list[Heard] = field(default_factory=list)
    tokens: int = 0
    seconds: float = 0.0
    cpu: Counter[str] = field(default_factory=Counter)
    """Seconds of CPU by part of the platform."""

    def us_per_token(self) -> dict[str, float]:
        """CPU by part, in microseconds for each token."""
        return {part: 1e6 * spent / self.tokens for part, spent in self.cpu.items()}

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds

    def first_ms(self, share: float) -> float:
        """A percentile of the time to first token."""
        return 1000 * percentile_by_rank([heard.first_s for heard in self.heard], share)


@dataclass(frozen=True)
class Pair:
    """Two ways to the same engine."""

    name: str
    direct: StreamClient
    router: StreamClient
    tokens_of: Callable[[Heard], int]


@dataclass(frozen=True)
class Row:
    """What one pair gave at one concurrency."""

    pair: str
    concurrency: int
    answers: int
    direct_p50_ms: float
    router_p50_ms: float
    direct_p95_ms: float
    router_p95_ms: float
    direct_rate: float
    router_rate: float
    p50_interval: tuple[float, float]
    """Where the ratio of the medians would lie in 90 of 100 such runs, by resampling."""
    direct_cpu_us: dict[str, float]
    router_cpu_us: dict[str, float]

    @property
    def p50_ratio(self) -> float:
        """Through the router against directly."""
        return self.router_p50_ms / self.direct_p50_ms

    @property
    def p95_ratio(self) -> float:
        """The same at the tail."""
        return self.router_p95_ms / self.direct_p95_ms

    @property
    def rate_ratio(self) -> float:
        """Tokens a second, through the router against directly."""
        return self.router_rate / self.direct_rate


async def compared(pair: Pair, concurrency: int, blocks: int, words: int, max_tokens: int) -> Row:
    """One pair at one concurrency, block by block."""
    size = 1 if concurrency == 1 else 2 * concurrency
    clients = {"direct": pair.direct, "router": pair.router}
    sides = {name: Side() for name in clients}
    questions = iter(distinct_questions((2 * blocks + 2) * size, words, seed=time.time_ns() % 2**32))
    records = platform_records()
    for block in range(-1, blocks):  # the first is not counted
        for name in sorted(clients, reverse=bool(block % 2)):
            asked = list(itertools.islice(questions, size if block >= 0 else concurrency))
            before, began = cpu_by_part(records), time.perf_counter()
            heard = await closed_loop(clients[name], asked, concurrency, max_tokens)
            seconds, after = time.perf_counter() - began, cpu_by_part(records)
            if block >= 0:
                side = sides[name]
                side.seconds += seconds
                side.heard += heard
                side.tokens += sum(map(pair.tokens_of, heard))
                side.cpu.update({part: after[part] - before[part] for part in after})
    return _row(pair.name, concurrency, **sides)


def _row(name: str, concurrency: int, direct: Side, router: Side) -> Row:
    return Row(
        pair=name,
        concurrency=concurrency,
        answers=len(direct.heard) + len(router.heard),
        direct_p50_ms=direct.first_ms(0.5),
        router_p50_ms=router.first_ms(0.5),
        direct_p95_ms=direct.first_ms(0.95),
        router_p95_ms=router.first_ms(0.95),
        direct_rate=direct.rate,
        router_rate=router.rate,
        p50_interval=_interval(direct.heard, router.heard, random.Random(1)),
        direct_cpu_us=direct.us_per_token(),
        router_cpu_us=router.us_per_token(),
    )


def _interval(direct: Sequence[Heard], router: Sequence[Heard], chance: random.Random) -> tuple[float, float]:
    """The middle 90% of the ratio of medians over samples drawn again from what was measured."""

    def median(heard: Sequence[Heard]) -> float:
        return statistics.median(each.first_s for each in chance.choices(heard, k=len(heard)))

    ratios = [median(router) / median(direct) for _ in range(RESAMPLED)]
    return percentile_by_rank(ratios, 0.05), percentile_by_rank(ratios, 0.95)


def leaf_pair(state: PlatformState, chat: ChatModel) -> Pair:
    """The platform's leaf, both ways. The leaf counts no tokens, so both texts are counted here."""
    assert chat.tokenizer is not None
    return Pair(
        "leaf",
        LeafClient(state.leaf_grpc, chat.model.triton_model("interactive"), partial(greedy_generation, chat)),
        EventClient(state.router, chat.model.name),
        partial(_counted, chat.tokenizer),
    )


def _counted(tokenizer: ChatTokenizer, heard: Heard) -> int:
    return tokenizer.count(heard.text)


def engine_pair(state: PlatformState, orders: EngineOrders, model: str) -> Pair:
    """The platform's own OpenAI server, asked as any client of it asks, and through the router. It counts itself."""
    key = {"Authorization": f"Bearer {orders.key}"}
    return Pair(
        "engine",
        EventClient(f"{orders.host}:{orders.port}", orders.names[0], key),
        EventClient(state.router, model),
        attrgetter("completion_tokens"),
    )


def pairs_of(state: PlatformState, folder: StateFolder) -> list[Pair]:
    """What this platform has: its leaf, its engine, or both."""
    pairs = []
    for chat in chat_models(Settings().resolved()).values():
        if chat.model.runs_on == "leaf":
            pairs.append(leaf_pair(state, chat))
        elif chat.model.runs_on == "engine":
            orders = EngineOrders.model_validate_json((folder.run / "engine.json").read_text(encoding="utf-8"))
            pairs.append(engine_pair(state, orders, chat.model.name))
    return pairs


async def measured(state: PlatformState, folder: StateFolder, given: argparse.Namespace) -> list[Row]:
    """Every pair that this platform has, at both concurrencies."""
    rows = []
    for pair in pairs_of(state, folder):
        for concurrency, blocks in ((1, given.blocks), (16, given.rounds)):
            rows.append(await compared(pair, concurrency, blocks, given.words, given.max_tokens))
        await pair.direct.close()
        await pair.router.close()
    return rows


def table(rows: Sequence[Row]) -> str:
    """The figures and each aim's verdict as a Markdown table."""
    head = "| pair | concurrency | way | first token p50, ms | p95, ms | tokens/s |"
    lines = [head, "|---|---|---|---|---|---|"]
    for row in rows:
        where = f"| {row.pair} | {row.concurrency} "
        low, high = row.p50_interval
        lines += [
            f"{where}| direct | {row.direct_p50_ms:.1f} | {row.direct_p95_ms:.1f} | {row.direct_rate:.1f} |",
            f"{where}| router | {row.router_p50_ms:.1f} | {row.router_p95_ms:.1f} | {row.router_rate:.1f} |",
            f"{where}| **ratio** ({row.answers} answers) | **{row.p50_ratio:.3f}** ({low:.3f} to {high:.3f}) "
            f"| {row.p95_ratio:.3f} | **{row.rate_ratio:.3f}** |",
        ]
    budgets = [line for row in rows for line in ("", *_budget(row))]
    return "\n".join([*lines, "", *(_verdict(row) for row in rows), *budgets])


def _budget(row: Row) -> list[str]:
    """Where the CPU went, for each token: what the router's way adds shows in its own parts and in the engine's."""
    parts = sorted(row.router_cpu_us, key=lambda part: -row.router_cpu_us[part])
    both = [(part, row.direct_cpu_us.get(part, 0.0), row.router_cpu_us[part]) for part in parts]
    return [
        f"| CPU at {row.pair}, concurrency {row.concurrency} | direct, us a token | router, us a token |",
        "|---|---|---|",
        *(f"| {part} | {one:,.0f} | {other:,.0f} |" for part, one, other in both if max(one, other) >= LEAST_SHOWN_US),
        f"| **all** | {sum(row.direct_cpu_us.values()):,.0f} | {sum(row.router_cpu_us.values()):,.0f} |",
    ]


def _verdict(row: Row) -> str:
    found = (
        ("first token p50", row.p50_ratio, row.p50_ratio <= MOST_FIRST, f"<= {MOST_FIRST}"),
        ("first token p95", row.p95_ratio, row.p95_ratio <= MOST_FIRST, f"<= {MOST_FIRST}"),
        ("tokens/s", row.rate_ratio, row.rate_ratio >= LEAST_RATE, f">= {LEAST_RATE}"),
    )
    said = "; ".join(
        f"{what} x {ratio:.3f}, aim {aim}: {'met' if met else 'MISSED'}" for what, ratio, met, aim in found
    )
    return f"{row.pair} at {row.concurrency}: {said}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=40, help="at concurrency 1: questions for each side")
    parser.add_argument("--rounds", type=int, default=3, help="at concurrency 16: rounds of 32 questions for each side")
    parser.add_argument("--words", type=int, default=40, help="length of a question")
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    folder = StateFolder(Settings().resolved().state_dir)
    state = folder.read_state()
    if state is None or not state.is_running:
        sys.exit("No platform runs from the state folder: `zooserve up` first.")
    rows = asyncio.run(measured(state, folder, given))
    found: Any = [{**asdict(row), "p50_ratio": row.p50_ratio, "rate_ratio": row.rate_ratio} for row in rows]
    print(json.dumps(found) if given.json else table(rows))


if __name__ == "__main__":
    main()
