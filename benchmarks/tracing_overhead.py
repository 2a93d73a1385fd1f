"""What tracing costs: routers that trace nothing, a tenth, everything; and whether a sick collector holds anybody up.

One router each (`own_router.py`), over one platform's servers, all of them up at once and loaded in turn, forwards in
one round and backwards in the next. Ratios are beside the router that traces nothing. CPU is that of the router, the
zoo's processes and the supervisor, from /proc: what holds beside other work, and what throughput comes to where the
cores are the limit. What is
traced goes into the platform's trace log, as it does without a benchmark; `down` and `hanging` trace everything to a
collector that refuses connections, and to one that accepts them and never answers.

Metrics cannot be switched off: what an embedding records is timed by itself (`recorders.py`) and told as a share of the
CPU that the router takes for a request.

    python benchmarks/tracing_overhead.py [--rounds 16] [--seconds 1]
"""

import argparse
import asyncio
import re
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from chat_streams import EventClient, Heard, closed_loop, distinct_questions
from cpu import platform_records, seconds_of
from load import add_addresses, embeddings_call, one_by_one, percentile, run_load, texts_of_words
from own_router import OwnRouter, own_router, resident_mb
from recorders import recorded_us

from zooserve.processes.identity import command_of
from zooserve.processes.ports import reserved_ports
from zooserve.processes.records import Record
from zooserve.processes.state import StateFolder
from zooserve.settings import Settings

OFF = "off"
_TEXTS = texts_of_words(20, 64)


@contextmanager
def hanging_collector() -> Iterator[str]:
    """The address of one that accepts and says nothing: a backlog that nobody takes from."""
    import socket

    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def trace_log_port(records: Sequence[Record]) -> int:
    """Where the platform's Triton sends its spans."""
    for record in records:
        if found := re.search(r"url=http://[^/ ]*:(\d+)/v1/traces", command_of(record.pid)):
            return int(found[1])
    raise SystemExit("This platform traces nothing: start it without ZOOSERVE_TRACING__SAMPLING=off.")


def settings_of(base: Settings, log_port: int, hanging: str) -> dict[str, Settings]:
    """Each router's settings, by what is compared."""
    dead = f"http://127.0.0.1:{reserved_ports(1)[0]}"

    def tracing(port: int | None, **values: object) -> Settings:
        return base.model_copy(
            update={
                "trace_log": base.trace_log.model_copy(update={"port": port}),
                "tracing": base.tracing.model_copy(update=values),
            }
        )

    return {
        OFF: tracing(None, sampling="off"),
        "head 10%": tracing(log_port, sampling="head", ratio=0.1),
        "head 100%": tracing(log_port, sampling="head", ratio=1.0),
        "tail": tracing(log_port, sampling="tail"),
        "down": tracing(None, sampling="head", ratio=1.0, endpoint=dead),
        "hanging": tracing(None, sampling="head", ratio=1.0, endpoint=hanging),
    }


@dataclass
class Taken:
    """What one router did, round by round."""

    router: OwnRouter
    beside: Sequence[int]
    """Processes that work for it, too: the zoo's, and the supervisor."""
    began_mb: float = 0.0
    embeds_per_s: list[float] = field(default_factory=list)
    router_cpu_ms: list[float] = field(default_factory=list)
    """The router's own CPU per embedding."""
    cpu_ms: list[float] = field(default_factory=list)
    """CPU per embedding of all that works on it, and on its traces."""
    embed_p50_ms: list[float] = field(default_factory=list)
    tokens_per_s: list[float] = field(default_factory=list)
    first_p50_ms: list[float] = field(default_factory=list)
    failed: int = 0

    def embeds(self, concurrency: int, seconds: float) -> None:
        """A round of single texts."""
        calls = [embeddings_call(self.router.url, text) for text in _TEXTS]
        own, others = self._cpu_s()
        measured = asyncio.run(run_load(calls, concurrency, seconds))
        own, others = (after - before for after, before in zip(self._cpu_s(), (own, others), strict=True))
        self.router_cpu_ms.append(1000 * own / len(measured.latencies_s))
        self.cpu_ms.append(1000 * (own + others) / len(measured.latencies_s))
        self.embeds_per_s.append(measured.per_second)
        self.failed += measured.failed

    def _cpu_s(self) -> tuple[float, float]:
        return seconds_of(self.router.pid), sum(map(seconds_of, self.beside))

    def chats(self, concurrency: int, count: int, max_tokens: int) -> None:
        """A round of streamed chats, the same ones for every router."""
        began = time.perf_counter()
        heard = asyncio.run(_chats(self.router, concurrency, count, max_tokens))
        self.tokens_per_s.append(sum(each.completion_tokens for each in heard) / (time.perf_counter() - began))
        self.first_p50_ms.append(1000 * percentile([each.first_s for each in heard], 0.5))


async def _chats(router: OwnRouter, concurrency: int, count: int, max_tokens: int) -> list[Heard]:
    client = EventClient(router.address, "chat")
    try:
        return await closed_loop(client, distinct_questions(count, 40, seed=3), concurrency, max_tokens)
    finally:
        await client.close()


def alone(taken: Mapping[str, Taken], count: int) -> None:
    """Single texts one by one, the routers taking turns request by request."""
    paths = {
        name: (lambda n, url=each.router.url: embeddings_call(url, _TEXTS[n % 64])) for name, each in taken.items()
    }
    for name, seconds in asyncio.run(one_by_one(paths, count)).items():
        taken[name].embed_p50_ms.append(1000 * percentile(seconds, 0.5))


def measure(taken: Mapping[str, Taken], given: argparse.Namespace) -> None:
    """All rounds, after one that does not count."""
    for each in taken.values():
        each.embeds(given.concurrency, 1.0)
        each.chats(given.chats_at_once, given.chats_at_once, 4)
        each.began_mb = resident_mb(each.router.pid)
        for values in (each.embeds_per_s, each.router_cpu_ms, each.cpu_ms, each.tokens_per_s, each.first_p50_ms):
            values.clear()
    for number in range(given.rounds):
        order = list(taken.values()) if number % 2 == 0 else list(reversed(taken.values()))
        for each in order:
            each.embeds(given.concurrency, given.seconds)
        alone(taken, given.count)
        for each in order:
            each.chats(given.chats_at_once, given.chats, given.max_tokens)


def _beside(values: Sequence[float], off: Sequence[float]) -> str:
    """The ratio of all rounds together, and the quartiles of the rounds' own."""
    ratios = [value / nothing for value, nothing in zip(values, off, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    return f"{sum(values) / sum(off):.3f} ({low:.2f}..{high:.2f})"


def table(taken: Mapping[str, Taken], given: argparse.Namespace) -> str:
    """The figures as Markdown tables."""
    off = taken[OFF]
    lines = [
        f"{given.rounds} rounds; embeddings of one text, {given.concurrency} clients and one; streamed chats of "
        f"{given.max_tokens} tokens, {given.chats_at_once} at once. Ratios: all together (quartiles of rounds).",
        "",
        "| tracing | embeds/s | beside off | CPU ms per embed | beside off | of the router | p50 alone, ms "
        "| beside off | chat tokens/s | beside off | first token p50, ms | failed |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, each in taken.items():
        cells = [
            f"{statistics.mean(each.embeds_per_s):.0f}",
            _beside(each.embeds_per_s, off.embeds_per_s),
            f"{statistics.mean(each.cpu_ms):.2f}",
            _beside(each.cpu_ms, off.cpu_ms),
            f"{statistics.mean(each.router_cpu_ms):.2f}",
            f"{statistics.median(each.embed_p50_ms):.1f}",
            _beside(each.embed_p50_ms, off.embed_p50_ms),
            f"{statistics.mean(each.tokens_per_s):.0f}",
            _beside(each.tokens_per_s, off.tokens_per_s),
            f"{statistics.median(each.first_p50_ms):.0f}",
            str(each.failed),
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", "| tracing | router RSS before, MB | after | spans taken | dropped |", "|---|---|---|---|---|"]
    for name, each in taken.items():
        taken_by, dropped = (each.router.told(f"zooserve_spans_{end}_total") for end in ("exported", "dropped"))
        after_mb = resident_mb(each.router.pid)
        lines.append(f"| {name} | {each.began_mb:.0f} | {after_mb:.0f} | {taken_by:.0f} | {dropped:.0f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_addresses(parser)
    parser.add_argument("--rounds", type=int, default=16, help="an even number is fair: every other one goes backwards")
    parser.add_argument("--seconds", type=float, default=1.0, help="of embeddings, for each router in each round")
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--count", type=int, default=30, help="embeddings one by one, for each router in each round")
    parser.add_argument("--chats", type=int, default=4, help="for each router in each round")
    parser.add_argument("--chats-at-once", type=int, default=4)
    parser.add_argument("--max-tokens", type=int, default=16)
    given = parser.parse_args()
    state = StateFolder(Settings().resolved().state_dir).read_state()
    assert state is not None, "no platform runs from the state folder"
    records = platform_records()
    beside = [state.pid, *(record.pid for record in records if record.role.split()[0] == "zoo")]
    with ExitStack() as stack:
        hanging = stack.enter_context(hanging_collector())
        variants = settings_of(_over(state.zoo_http, state.leaf_grpc), trace_log_port(records), hanging)
        taken = {name: Taken(stack.enter_context(own_router(settings)), beside) for name, settings in variants.items()}
        supervisor_mb = resident_mb(state.pid)
        measure(taken, given)
        print(table(taken, given))
        after_mb = resident_mb(state.pid)
        print(f"\nThe supervisor, which keeps the trace log: {supervisor_mb:.0f} MB before, {after_mb:.0f} after.")
        metrics_us, cpu_ms = recorded_us(), statistics.mean(taken[OFF].router_cpu_ms)
        print(f"Metrics of one embedding: {metrics_us:.1f} us, {metrics_us / cpu_ms / 10:.2f}% of the router's CPU.")


def _over(zoo_http: str, leaf_grpc: str) -> Settings:
    """Settings of a router over these servers, for the models that the benchmark asks."""
    settings = Settings().resolved()
    zoo, leaf = (int(address.rpartition(":")[2]) for address in (zoo_http, leaf_grpc))
    return settings.model_copy(
        update={
            "models": "embed,chat",
            "zoo": settings.zoo.model_copy(update={"http_port": zoo}),
            "leaf": settings.leaf.model_copy(update={"grpc_port": leaf}),
            "access_log": settings.access_log.model_copy(update={"folder": settings.state_dir / "bench-logs"}),
        }
    )


if __name__ == "__main__":
    main()
