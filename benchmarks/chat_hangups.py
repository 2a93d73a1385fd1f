"""Streamed chats whose clients hang up at a random point: does the leaf come to rest, does any process grow?

    python benchmarks/chat_hangups.py --state-dir ~/.local/state/zooserve [--count 100] [--json]

The platform that runs from the state folder is asked (`--router`, `--leaf-metrics` and `--supervisor PID` name one
otherwise). A third of the clients leave before the first token, a third within the answer, the rest at any chunk or at
the end. Afterwards the leaf must report no active request and no live KV within two seconds; cached prefixes may stay.
Memory is first read after a warm-up, which fills caches and pools; what grows after that grows with use.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
import psutil
from rich.console import Console
from rich.table import Table

from zooserve.leaf.metrics import LeafLoad, load_in
from zooserve.processes.records import ProcessRecords
from zooserve.processes.state import StateFolder
from zooserve.settings import Settings

REST_S = 2.0
# The leaf samples its metrics four times a second.
POLL_S = 0.05


@dataclass(frozen=True)
class Target:
    """Where the platform under test is."""

    router: str
    leaf_metrics: str
    processes: dict[int, str]
    """Its processes: pid to role."""


@dataclass(frozen=True)
class Result:
    """One run, measured."""

    chats: int
    ends: dict[str, int]
    seconds: float
    rest_s: float | None
    """Until no request was active and no KV live; None when that took too long."""
    load: LeafLoad
    wasted_tokens: int
    memory_mb: dict[str, tuple[float, float]]
    """By role, before and after."""


async def leave_at_random(http: httpx.AsyncClient, chance: random.Random) -> str:
    """One streamed chat, left somewhere; says where."""
    body = {
        "model": "chat",
        "messages": [{"role": "user", "content": f"Tell me a story about the number {chance.randrange(10_000)}."}],
        "max_tokens": 64,
        "stream": True,
    }
    kind = chance.choice(("before the first token", "in the middle", "anywhere"))
    if kind == "before the first token":
        try:
            async with asyncio.timeout(chance.uniform(0.0, 0.15)):
                return await read(http, body, 1)
        except TimeoutError:
            return kind
    return await read(http, body, chance.randint(2, 20) if kind == "in the middle" else chance.randint(1, 80))


async def read(http: httpx.AsyncClient, body: object, chunks: int) -> str:
    """Read so many chunks, then leave; says how it ended."""
    seen = 0
    async with http.stream("POST", "/v1/chat/completions", json=body) as response:
        if response.status_code != 200:
            return f"refused with {response.status_code}"
        async for line in response.aiter_lines():
            if line == "data: [DONE]":
                return "heard to the end"
            seen += line.startswith("data: ")
            if seen >= chunks:
                return "in the middle" if seen > 1 else "at the first chunk"
    return "broken off by the server"


async def run(target: Target, count: int, concurrency: int, chance: random.Random) -> Counter[str]:
    """That many chats, at most `concurrency` at once."""
    gate = asyncio.Semaphore(concurrency)
    # No connection is reused after a hang-up, so the pool must not be the limit.
    limits = httpx.Limits(max_connections=concurrency * 2)
    async with httpx.AsyncClient(base_url=target.router, timeout=120, limits=limits) as http:

        async def one() -> str:
            async with gate:
                return await leave_at_random(http, chance)

        return Counter(await asyncio.gather(*(one() for _ in range(count))))


async def until_rest(target: Target) -> tuple[float | None, LeafLoad]:
    """Seconds until the leaf is at rest, and its load then; None if it is not within REST_S."""
    began = time.monotonic()
    async with httpx.AsyncClient() as http:
        while True:
            load = load_in((await http.get(f"http://{target.leaf_metrics}/metrics")).text)
            spent = time.monotonic() - began
            if load.active_requests == load.waiting_requests == load.live_kv_tokens == 0:
                return spent, load
            if spent > REST_S:
                return None, load
            await asyncio.sleep(POLL_S)


async def wasted(target: Target) -> int:
    """The router's own count of tokens written for nobody."""
    async with httpx.AsyncClient() as http:
        text = (await http.get(f"{target.router}/metrics")).text
    lines = [line for line in text.splitlines() if line.startswith("zooserve_wasted_tokens_total")]
    return int(sum(float(line.rsplit(" ", 1)[1]) for line in lines))


def memory_by_role(target: Target) -> dict[str, float]:
    """Resident megabytes of the platform's processes, added up by role."""
    total: dict[str, float] = defaultdict(float)
    for pid, role in target.processes.items():
        if psutil.pid_exists(pid):
            total[role] += psutil.Process(pid).memory_info().rss / 1e6
    return dict(total)


async def measured(target: Target, count: int, warm_up: int, concurrency: int, chance: random.Random) -> Result:
    """A warm-up, then the run between two looks at the memory."""
    await run(target, warm_up, concurrency, chance)
    await until_rest(target)
    before, wasted_before = memory_by_role(target), await wasted(target)
    began = time.monotonic()
    ends = await run(target, count, concurrency, chance)
    seconds = time.monotonic() - began
    rest_s, load = await until_rest(target)
    after = memory_by_role(target)
    memory = {role: (before[role], after.get(role, 0.0)) for role in sorted(before)}
    return Result(count, dict(ends), seconds, rest_s, load, await wasted(target) - wasted_before, memory)


def target_of(options: argparse.Namespace) -> Target:
    """The platform that the options name."""
    folder = StateFolder(options.state_dir.expanduser())
    state = folder.read_state()
    if options.router and options.leaf_metrics:
        return Target(options.router.rstrip("/"), options.leaf_metrics, tree_of(options.supervisor))
    if state is None or not state.is_running:
        sys.exit(f"No platform runs from {folder.root}: run `zooserve up`, or name --router and --leaf-metrics.")
    processes = {record.pid: record.role for record in ProcessRecords(folder.records_file).alive()}
    return Target(f"http://{state.router}", state.leaf_metrics, processes)


def tree_of(supervisor: int | None) -> dict[int, str]:
    """A process and everything below it, by name."""
    if supervisor is None:
        return {}
    root = psutil.Process(supervisor)
    return {process.pid: process.name() for process in (root, *root.children(recursive=True))}


def show(result: Result) -> None:
    """The result as tables."""
    out = Console()
    out.print(f"{result.chats} streamed chats in {result.seconds:.1f} s ({result.chats / result.seconds:.1f}/s)")
    for end, count in sorted(result.ends.items()):
        out.print(f"  {count:5d} {end}")
    rest = f"after {result.rest_s:.2f} s" if result.rest_s is not None else f"NOT within {REST_S:.0f} s"
    load = result.load
    out.print(
        f"leaf at rest {rest}: {load.active_requests} active, {load.waiting_requests} waiting, "
        f"{load.live_kv_tokens} live KV tokens ({load.cached_kv_tokens} cached); "
        f"{result.wasted_tokens} tokens written for nobody"
    )
    table = Table("process", "before, MB", "after, MB", "growth, MB", box=None)
    for role, (before, after) in result.memory_mb.items():
        table.add_row(role, f"{before:.0f}", f"{after:.0f}", f"{after - before:+.1f}")
    out.print(table)


def main() -> None:
    """Read the options, measure, print; exit code 1 when the leaf does not come to rest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state-dir", type=Path, default=Settings().state_dir)
    parser.add_argument("--router", help="base URL")
    parser.add_argument("--leaf-metrics", help="host:port")
    parser.add_argument("--supervisor", type=int, help="pid whose process tree is the platform")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--warm-up", type=int, default=100, help="chats before the first look at the memory")
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    result = asyncio.run(measured(target_of(options), options.count, options.warm_up, options.concurrency, chance))
    print(json.dumps(asdict(result), indent=1)) if options.json else show(result)
    sys.exit(result.rest_s is None)


if __name__ == "__main__":
    main()
