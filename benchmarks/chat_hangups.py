"""Chats whose clients hang up or whose deadlines pass at random: does all come to rest, does every count add up?

    python benchmarks/chat_hangups.py --state-dir ~/.local/state/zooserve [--count 1000] [--deadlines 200] [--json]

The platform that runs from the state folder is asked (`--router`, `--leaf-metrics` and `--supervisor PID` name one
otherwise). Of those who leave, a third does so before the first token, a third within the answer, the rest at any
moment or at the end; a quarter asks for whole answers instead of streams, and a sixth for two or three choices.
Deadlines fall anywhere between 5 ms and 2 s. Afterwards, within two seconds, the leaf must report no active request
and no live KV, the router no token held and nobody waiting; cached prefixes may stay. What was issued must have ended,
and no client may have seen more than was counted. Memory is first read after a warm-up, which fills caches and pools;
what grows after that grows with use.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
import psutil
from chat_ledger import Ledger, faults, ledger_in
from rich.console import Console
from rich.table import Table

from zooserve.leaf.metrics import LeafLoad, load_in
from zooserve.processes.records import ProcessRecords
from zooserve.processes.state import StateFolder
from zooserve.settings import Settings

MODEL = "chat"
REST_S = 2.0
# The leaf samples its metrics four times a second.
POLL_S = 0.05
WHOLE, LATE = "heard to the end", "told of its deadline"
Chat = Callable[[httpx.AsyncClient, random.Random], Awaitable[str]]


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
    deadlines: int
    ends: dict[str, int]
    """As the clients saw them."""
    seconds: float
    rest_s: float | None
    """Until no request was active and no KV live; None when that took too long."""
    load: LeafLoad
    ledger: Ledger
    """As the router counted them."""
    faults: tuple[str, ...]
    memory_mb: dict[str, tuple[float, float]]
    """By role, before and after."""


def asked(chance: random.Random) -> dict[str, object]:
    """A chat that nobody asked before, so that its prompt is not cached as a whole."""
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": f"Tell me a story about the number {chance.randrange(10_000)}."}],
        "max_tokens": 64,
        "stream": chance.random() < 0.75,
        "n": chance.choice((2, 3)) if chance.random() < 1 / 6 else 1,
    }


async def left(http: httpx.AsyncClient, chance: random.Random) -> str:
    """One chat, left somewhere; says where."""
    body = asked(chance)
    if not body["stream"]:
        return await within(chance.uniform(0.0, 3.0), whole(http, body, {}), "before its whole answer")
    kind = chance.choice(("before the first token", "in the middle", "anywhere"))
    if kind == "before the first token":
        return await within(chance.uniform(0.0, 0.15), read(http, body, {}, 1), kind)
    return await read(http, body, {}, chance.randint(2, 20) if kind == "in the middle" else chance.randint(1, 200))


async def expired(http: httpx.AsyncClient, chance: random.Random) -> str:
    """One chat whose time is short; says what became of it."""
    body = asked(chance)
    headers = {"x-request-timeout-ms": str(round(5 * 400 ** chance.random()))}
    return await (read(http, body, headers, sys.maxsize) if body["stream"] else whole(http, body, headers))


async def within(seconds: float, chat: Awaitable[str], otherwise: str) -> str:
    """How the chat ended, unless it is left after so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            return await chat
    except TimeoutError:
        return otherwise


async def whole(http: httpx.AsyncClient, body: object, headers: dict[str, str]) -> str:
    """One whole answer; says how it ended."""
    return of_status((await http.post("/v1/chat/completions", json=body, headers=headers)).status_code)


async def read(http: httpx.AsyncClient, body: object, headers: dict[str, str], chunks: int) -> str:
    """Read so many chunks, then leave; says how it ended."""
    seen, end = 0, WHOLE
    async with http.stream("POST", "/v1/chat/completions", json=body, headers=headers) as response:
        if response.status_code != 200:
            return of_status(response.status_code)
        async for line in response.aiter_lines():
            if line == "data: [DONE]":
                return end
            if line.startswith('data: {"error"'):
                end = LATE if "deadline_exceeded" in line else f"broken off: {line}"
            seen += line.startswith("data: ")
            if seen >= chunks:
                return "in the middle" if seen > 1 else "at the first chunk"
    return "broken off by the server"


def of_status(status: int) -> str:
    """How a client calls it."""
    return {200: WHOLE, 504: LATE}.get(status, f"refused with {status}")


async def run(target: Target, chats: list[Chat], concurrency: int, chance: random.Random) -> Counter[str]:
    """These chats, at most `concurrency` at once."""
    gate = asyncio.Semaphore(concurrency)
    # No connection is reused after a hang-up, so the pool must not be the limit.
    limits = httpx.Limits(max_connections=concurrency * 2)
    async with httpx.AsyncClient(base_url=target.router, timeout=120, limits=limits) as http:

        async def one(chat: Chat) -> str:
            async with gate:
                return await chat(http, chance)

        return Counter(await asyncio.gather(*map(one, chats)))


async def until_rest(target: Target) -> tuple[float | None, LeafLoad, Ledger]:
    """Seconds until leaf and router are at rest, and their counts then; None if they are not within REST_S."""
    began = time.monotonic()
    async with httpx.AsyncClient() as http:
        while True:
            load = load_in((await http.get(f"http://{target.leaf_metrics}/metrics")).text)
            ledger = ledger_in((await http.get(f"{target.router}/metrics")).text, MODEL)
            spent = time.monotonic() - began
            leaf_rests = load.active_requests == load.waiting_requests == load.live_kv_tokens == 0
            if leaf_rests and ledger.held_tokens == ledger.waiting == 0:
                return spent, load, ledger
            if spent > REST_S:
                return None, load, ledger
            await asyncio.sleep(POLL_S)


def memory_by_role(target: Target) -> dict[str, float]:
    """Resident megabytes of the platform's processes, added up by role."""
    total: dict[str, float] = defaultdict(float)
    for pid, role in target.processes.items():
        if psutil.pid_exists(pid):
            total[role] += psutil.Process(pid).memory_info().rss / 1e6
    return dict(total)


async def measured(target: Target, options: argparse.Namespace) -> Result:
    """A warm-up, then the run between two looks at the memory and at the counts."""
    chance = random.Random(options.seed)
    await run(target, [left] * options.warm_up, options.concurrency, chance)
    _, _, counted_before = await until_rest(target)
    memory_before = memory_by_role(target)
    chats: list[Chat] = [left] * options.count + [expired] * options.deadlines
    chance.shuffle(chats)
    began = time.monotonic()
    ends = await run(target, chats, options.concurrency, chance)
    seconds = time.monotonic() - began
    rest_s, load, counted = await until_rest(target)
    ledger = counted.since(counted_before)
    memory_after = memory_by_role(target)
    return Result(
        chats=options.count,
        deadlines=options.deadlines,
        ends=dict(ends),
        seconds=seconds,
        rest_s=rest_s,
        load=load,
        ledger=ledger,
        faults=tuple(faults(ledger, len(chats), ends[WHOLE], ends[LATE])),
        memory_mb={role: (memory_before[role], memory_after.get(role, 0.0)) for role in sorted(memory_before)},
    )


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
    chats = result.chats + result.deadlines
    out.print(
        f"{result.chats} chats that are left and {result.deadlines} with short deadlines, in {result.seconds:.1f} s "
        f"({chats / result.seconds:.1f}/s)"
    )
    ledger = result.ledger
    columns = {
        "clients": dict(sorted(result.ends.items())),
        "requests": {**ledger.requests, "never arrived": chats - sum(ledger.requests.values())},
        "choices": {"issued": ledger.issued, **ledger.ended},
        "tokens": {"written": ledger.output_tokens, **{f"for nobody: {why}": n for why, n in ledger.wasted.items()}},
    }
    for name, counts in columns.items():
        table = Table(name, "", box=None)
        for what, count in counts.items():
            table.add_row(what, str(count))
        out.print(table)
    rest = f"after {result.rest_s:.2f} s" if result.rest_s is not None else f"NOT within {REST_S:.0f} s"
    load = result.load
    out.print(
        f"at rest {rest}: {load.active_requests} active, {load.waiting_requests} waiting, "
        f"{load.live_kv_tokens} live KV tokens ({load.cached_kv_tokens} cached); the router holds {ledger.held_tokens}"
    )
    out.print("every count adds up" if not result.faults else "\n".join(f"DOES NOT ADD UP: {f}" for f in result.faults))
    table = Table("process", "before, MB", "after, MB", "growth, MB", box=None)
    for role, (before, after) in result.memory_mb.items():
        table.add_row(role, f"{before:.0f}", f"{after:.0f}", f"{after - before:+.1f}")
    out.print(table)


def main() -> None:
    """Read the options, measure, print; exit code 1 when something does not come to rest or does not add up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state-dir", type=Path, default=Settings().state_dir)
    parser.add_argument("--router", help="base URL")
    parser.add_argument("--leaf-metrics", help="host:port")
    parser.add_argument("--supervisor", type=int, help="pid whose process tree is the platform")
    parser.add_argument("--count", type=int, default=1000, help="chats that are left")
    parser.add_argument("--deadlines", type=int, default=200, help="chats with short deadlines")
    parser.add_argument("--warm-up", type=int, default=100, help="chats before the first look at the memory")
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = asyncio.run(measured(target_of(options), options))
    print(json.dumps(asdict(result), indent=1)) if options.json else show(result)
    sys.exit(result.rest_s is None or bool(result.faults))


if __name__ == "__main__":
    main()
