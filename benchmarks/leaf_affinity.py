"""Two leaves, many conversations: what does sending each where its prefix is cached buy, beside chance and least load?

    python benchmarks/leaf_affinity.py [--conversations 16] [--turns 4] [--at-once 4] [--rounds 2] [--short] [--json]

Starts two Tritons with the embedded leaf, one core each, and asks them through the router's own client of several
leaves (`zooserve_router.backends.leaves`), once per policy over the same conversations. They come in groups that share
a long system prompt; every policy and round has system prompts of its own, so that none finds what another one cached.
Hits are the engine's own: `nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="reused"}`, beside all prompt blocks.
Balance is the fullest leaf's part of the prompt tokens that had to be worked on, in shares of an even split.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import statistics
import tempfile
import time
import urllib.request
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer

from zooserve.leaf.metrics import load_in
from zooserve.processes.ports import reserved_ports
from zooserve.settings import Settings
from zooserve.triton.installation import find_installation
from zooserve.triton.server import Addresses, TritonServer
from zooserve_cli.plan import own_backends
from zooserve_router.affinity import IDLE_PART
from zooserve_router.backends.leaf import Leaf
from zooserve_router.backends.leaves import Choose, Leaves, by_affinity
from zooserve_router.chat.generation import Generation, Piece, Sampling, Work

MODEL = Path(__file__).parents[1] / "model_repository/leaf/tensorrt_llm"
SLOTS, CONTEXT, BLOCK = 8, 2048, 32
ANSWER_TOKENS = 16
GROUP = 2
"""Conversations under one system prompt."""
SYSTEM_WORDS, QUESTION_WORDS = 240, 20
METRICS_LAG_S = 0.6
_START_S = 120
_TIMEOUT_S = 120.0
WORDS = (
    "river mountain library engine garden window letter bridge market captain winter story music stone harbour "
    "forest teacher copper village lantern orchard signal journey kitchen feather"
).split()


@dataclass
class Server:
    """One leaf's Triton."""

    triton: TritonServer

    def reused_blocks(self) -> int:
        """Prompt blocks that the engine found in its cache, ever."""
        with urllib.request.urlopen(f"http://{self.triton.addresses.metrics}/metrics", timeout=20) as page:
            return load_in(page.read().decode()).reused_blocks


@dataclass
class Counted:
    """A leaf's client that keeps what went through it."""

    leaf: Leaf
    prompts: list[str] = field(default_factory=list)

    async def generate(self, work: Work, timeout_s: float) -> AsyncGenerator[Piece, None]:
        """The leaf's answer."""
        assert isinstance(work, Generation)
        self.prompts.append(work.prompt)
        async with aclosing(self.leaf.generate(work, timeout_s)) as pieces:
            async for piece in pieces:
                yield piece


@dataclass(frozen=True)
class Row:
    """One policy, measured."""

    policy: str
    requests: int
    prompt_blocks: int
    reused_blocks: int
    first_token_ms: tuple[float, float]
    """Mean and 95th percentile."""
    later_turns_first_token_ms: float
    """Mean of the turns after the first."""
    worked_share: float
    """Prompt blocks that the fullest leaf worked on, over an even split."""

    @property
    def hits(self) -> float:
        """The part of the prompts that was not worked on again."""
        return self.reused_blocks / self.prompt_blocks


def by_chance(rng: random.Random) -> Choose:
    """Any leaf."""
    return lambda generation, loads, tokens: rng.choice(sorted(loads))


def by_load(rng: random.Random) -> Choose:
    """The leaf with the fewest tokens in flight, any of several."""

    def choose(generation: Generation, loads: Mapping[str, int], tokens: int) -> str:
        least = min(loads.values())
        return rng.choice([leaf for leaf in sorted(loads) if loads[leaf] == least])

    return choose


def policies(rng: random.Random) -> Mapping[str, Choose]:
    """What is compared. The bound below which no leaf is busy is the one that the router takes."""
    return {
        "chance": by_chance(rng),
        "least load": by_load(rng),
        "affinity": by_affinity(SLOTS * CONTEXT // IDLE_PART),
    }


@contextmanager
def two_leaves() -> Iterator[list[Server]]:
    """Two servers over the committed model, one thread each; stopped at the end."""
    with tempfile.TemporaryDirectory(prefix="zooserve-bench-") as scratch, ExitStack() as stack:
        folder = Path(scratch)
        version = folder / "models" / MODEL.name / "1"
        version.mkdir(parents=True)
        shutil.copy(MODEL / "config.pbtxt", version.parent)
        shutil.copy(MODEL / "1" / "model.py", version)
        knobs = {"model": MODEL / "1" / "model.gguf", "slots": SLOTS, "context_per_slot": CONTEXT, "threads": 1}
        (version / "model.yaml").write_text("".join(f"{name}: {value}\n" for name, value in knobs.items()))
        installation = find_installation(Settings().resolved().cache_dir, own_backends())
        servers = []
        for number in range(2):
            name = f"leaf-{number}"
            addresses = Addresses("127.0.0.1", *reserved_ports(3))
            prefix = f"zooserve-bench-{os.getpid()}-"
            triton = TritonServer(
                name, installation, version.parents[1], addresses, folder / f"{name}.log", shm_prefix=prefix
            )
            stack.callback(triton.stop, 10)
            triton.start()
            servers.append(Server(triton))
        for server in servers:
            server.triton.wait_until_loaded(_START_S)
        yield servers


def words(rng: random.Random, count: int) -> str:
    """So many words that no other text begins with."""
    return " ".join(rng.choice(WORDS) for _ in range(count))


def turn(role: str, text: str) -> str:
    """One message in the model's template."""
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


@dataclass
class Timing:
    """When a request's first piece came."""

    turn: int
    first_token_s: float


async def converse(leaves: Leaves, system: str, turns: int, rng: random.Random, timings: list[Timing]) -> None:
    """One conversation: each turn's prompt is everything before it and a new question."""
    prompt = turn("system", system)
    for number in range(turns):
        prompt += turn("user", words(rng, QUESTION_WORDS)) + "<|im_start|>assistant\n"
        started, answer = time.monotonic(), ""
        sampling = Sampling(max_tokens=ANSWER_TOKENS, temperature=0.0)
        async with aclosing(leaves.generate(Generation(prompt, sampling), _TIMEOUT_S)) as pieces:
            async for piece in pieces:
                if not answer:
                    timings.append(Timing(number, time.monotonic() - started))
                answer += piece.text
        prompt += f"{answer}<|im_end|>\n"


async def measured(
    name: str, choose: Choose, servers: Sequence[Server], given: argparse.Namespace, seed: int, tokenizer: Tokenizer
) -> Row:
    """One policy over conversations that are the same for every policy but for the words of their prompts."""
    rng = random.Random(seed)
    clients = {
        server.triton.addresses.grpc: Counted(Leaf(server.triton.addresses.grpc, MODEL.name)) for server in servers
    }
    leaves = Leaves(clients, choose)
    systems = [words(rng, SYSTEM_WORDS) for _ in range(-(-given.conversations // GROUP))]
    room, timings = asyncio.Semaphore(given.at_once), list[Timing]()

    async def one(number: int) -> None:
        async with room:
            mine = random.Random(f"{seed} {number}")
            await converse(leaves, systems[number % len(systems)], given.turns, mine, timings)

    before = [server.reused_blocks() for server in servers]
    await asyncio.gather(*(one(number) for number in range(given.conversations)))
    await asyncio.sleep(METRICS_LAG_S)
    reused = [server.reused_blocks() - old for server, old in zip(servers, before, strict=True)]
    for client in clients.values():
        await client.leaf.close()
    blocks = [sum(blocks_of(tokenizer, prompt) for prompt in client.prompts) for client in clients.values()]
    worked = [all_ - found for all_, found in zip(blocks, reused, strict=True)]
    firsts = [timing.first_token_s * 1e3 for timing in timings]
    return Row(
        name,
        len(timings),
        sum(blocks),
        sum(reused),
        (statistics.mean(firsts), statistics.quantiles(firsts, n=20)[-1]),
        statistics.mean(timing.first_token_s * 1e3 for timing in timings if timing.turn),
        max(worked) * len(worked) / sum(worked),
    )


def blocks_of(tokenizer: Tokenizer, prompt: str) -> int:
    """Whole blocks of a prompt, as the engine counts those that it reuses."""
    return len(tokenizer.encode(prompt, add_special_tokens=False).ids) // BLOCK


def merged(rows: Sequence[Row]) -> Row:
    """The rounds of one policy as one row."""
    return Row(
        rows[0].policy,
        sum(row.requests for row in rows),
        sum(row.prompt_blocks for row in rows),
        sum(row.reused_blocks for row in rows),
        (statistics.mean(row.first_token_ms[0] for row in rows), max(row.first_token_ms[1] for row in rows)),
        statistics.mean(row.later_turns_first_token_ms for row in rows),
        statistics.mean(row.worked_share for row in rows),
    )


async def compared(servers: Sequence[Server], given: argparse.Namespace) -> list[Row]:
    """Every policy, in turn, round by round."""
    tokenizer = Tokenizer.from_file(str(MODEL / "1" / "tokenizer.json"))
    rows: dict[str, list[Row]] = {}
    for round_ in range(given.rounds):
        for place, (name, choose) in enumerate(policies(random.Random(round_)).items()):
            seed = round_ * 100 + place
            rows.setdefault(name, []).append(await measured(name, choose, servers, given, seed, tokenizer))
    return [merged(of_policy) for of_policy in rows.values()]


def table_of(rows: Sequence[Row]) -> Table:
    """The rows as a person reads them."""
    table = Table("policy", "requests", "blocks reused", "TTFT mean, ms", "TTFT p95", "TTFT later turns", "balance")
    for row in rows:
        mean, p95 = row.first_token_ms
        table.add_row(
            row.policy,
            str(row.requests),
            f"{row.reused_blocks} of {row.prompt_blocks} ({row.hits:.0%})",
            f"{mean:.0f}",
            f"{p95:.0f}",
            f"{row.later_turns_first_token_ms:.0f}",
            f"{row.worked_share:.2f}",
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conversations", type=int, default=16)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--at-once", type=int, default=4, help="conversations that go on at the same time")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--short", action="store_true", help="one round of 8 conversations of 3 turns")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.short:
        given.conversations, given.turns, given.rounds = 8, 3, 1
    os.environ.setdefault("GOMP_SPINCOUNT", "100")
    with two_leaves() as servers:
        rows = asyncio.run(compared(servers, given))
    if given.json:
        print(json.dumps([asdict(row) | {"hits": row.hits} for row in rows], indent=2))
    else:
        Console().print(table_of(rows))


if __name__ == "__main__":
    main()
