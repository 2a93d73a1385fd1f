"""Two real leaves behind one backend: where conversations find their cache, and what becomes of a leaf that dies."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import psutil
import pytest

from zooserve.errors import BackendFailed
from zooserve.leaf.contract import MODEL_NAME
from zooserve_router.backends.leaf import Leaf
from zooserve_router.backends.leaves import Leaves, by_affinity
from zooserve_router.chat.generation import Generation, Sampling

pytestmark = pytest.mark.e2e

TOWNS = "There are these towns: " + ", ".join(f"town number {number}" for number in range(60))


class Pair:
    """Two servers and the backend over them."""

    def __init__(self, servers: list[Any]) -> None:
        self.servers = {server.server.addresses.grpc: server for server in servers}
        self.clients = {address: Leaf(address, MODEL_NAME) for address in self.servers}
        self.prompt = servers[0].prompt
        self.leaves = Leaves(self.clients, by_affinity(10_000))

    async def text(self, prompt: str, max_tokens: int = 4) -> str:
        work = Generation(prompt, Sampling(max_tokens=max_tokens, temperature=0.0))
        return "".join([piece.text async for piece in self.leaves.generate(work, 60)])

    async def reused(self) -> dict[str, int]:
        return {address: (await server.load()).reused_blocks for address, server in self.servers.items()}

    def busy(self) -> str:
        (address,) = [address for address, count in self.leaves.in_flight().items() if count]
        return address


@pytest.fixture
async def pair(start_leaf: Callable[[str], Any]) -> AsyncIterator[Pair]:
    made = Pair([await asyncio.to_thread(start_leaf, f"pair-{name}") for name in "ab"])
    yield made
    for client in made.clients.values():
        await client.close()
    for server in made.servers.values():
        await asyncio.to_thread(server.server.stop, 2)


async def test_a_conversation_finds_its_cache_and_a_dead_leafs_work_goes_to_the_other(pair: Pair) -> None:
    before = await pair.reused()
    prompt = pair.prompt(f"{TOWNS}. Which town is the first?")
    answer = await pair.text(prompt)
    await pair.text(f"{prompt}{answer}<|im_end|>\n<|im_start|>user\nAnd the second?<|im_end|>\n<|im_start|>assistant\n")
    await asyncio.sleep(0.6)  # the leaf samples its metrics four times a second
    gained = {address: count - before[address] for address, count in (await pair.reused()).items()}
    assert sorted(gained.values())[0] == 0
    assert sorted(gained.values())[1] >= len(prompt) // 4 // 32

    story = Generation(pair.prompt(f"{TOWNS}. Write a very long story about a dragon."), Sampling(max_tokens=500))
    async with aclosing(pair.leaves.generate(story, 60)) as pieces:
        await anext(pieces)
        dying = pair.busy()
        psutil.Process(pair.servers[dying].server.pid).kill()
        with pytest.raises(BackendFailed, match="send the request again"):
            [piece async for piece in pieces]
    assert pair.leaves.left_out() == {dying}
    assert dict(pair.leaves.in_flight()) == dict.fromkeys(pair.servers, 0)
    assert await pair.text(prompt) == answer

    server = pair.servers[dying].server
    await asyncio.to_thread(server.stop, 1)
    await asyncio.to_thread(server.start)
    await asyncio.to_thread(server.wait_until_loaded, 120)
    while pair.leaves.left_out():
        assert await pair.text(prompt) == answer
        await asyncio.sleep(0.1)
    assert await pair.text(prompt) == answer
