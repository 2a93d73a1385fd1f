"""The load of the live test: quiet, gentle, heavy, and what goes wrong. Run as a program of its own.

    python load.py http://127.0.0.1:8000 gentle 20

Answers are not looked at: refusals and failures are part of it.
"""

import asyncio
import itertools
import random
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import httpx

WORDS = "river stone lantern harvest winter copper signal orchard velvet thunder paper island".split()  # noqa: SIM905
Send = Callable[[httpx.AsyncClient, int], Awaitable[object]]
_RNG = random.Random(7)


def text(number: int, words: int = 12) -> str:
    """Another one for every number."""
    return f"{number} " + " ".join(WORDS[(number + place) % len(WORDS)] for place in range(words))


async def post(http: httpx.AsyncClient, path: str, body: dict[str, Any], **headers: str) -> httpx.Response:
    """One request, its caller by key."""
    return await http.post(path, json=body, headers={"x-api-key": f"caller-{_RNG.randrange(8)}", **headers})


async def embed(http: httpx.AsyncClient, number: int) -> object:
    """A few texts, one of which is asked for again and again."""
    body = {"model": "embed", "input": [text(number), "what is asked for again and again"]}
    return await post(http, "/v1/embeddings", body)


async def embed_many(http: httpx.AsyncClient, number: int) -> object:
    """Bulk."""
    return await post(http, "/v1/embeddings", {"model": "embed", "input": [text(number + n, 40) for n in range(48)]})


async def rerank(http: httpx.AsyncClient, number: int) -> object:
    """A query and some documents."""
    documents = [text(number + n, 20) for n in range(4)]
    return await post(http, "/v2/rerank", {"model": "rerank", "query": text(number, 5), "documents": documents})


async def rerank_many(http: httpx.AsyncClient, number: int) -> object:
    """Too many for a caller who does not want to wait, and does not say so."""
    documents = [text(number + n, 80) for n in range(80)]
    body = {"model": "rerank", "query": text(number, 5), "documents": documents}
    return await post(http, "/v2/rerank", body, **{"x-zooserve-class": "interactive"})


async def classify(http: httpx.AsyncClient, number: int) -> object:
    """A language, or whether it is toxic."""
    model = "language" if number % 3 else "classify"
    return await post(http, "/v1/classify", {"model": model, "input": [text(number)]})


async def rag_query(http: httpx.AsyncClient, number: int) -> object:
    """Vector, injection and language at once."""
    return await post(http, "/v1/rag_query", {"model": "rag_query", "input": text(number)})


async def embed_sparse(http: httpx.AsyncClient, number: int) -> object:
    """Words and their weights."""
    return await post(http, "/embed_sparse", {"model": "embed_sparse", "inputs": [text(number)]})


def messages(number: int, words: int = 8) -> list[dict[str, str]]:
    """A question."""
    return [{"role": "user", "content": f"Tell me about {text(number, words)}"}]


async def chat(http: httpx.AsyncClient, number: int, model: str = "chat", **fields: Any) -> object:
    """A short answer."""
    return await post(
        http, "/v1/chat/completions", {"model": model, "max_tokens": 24, "messages": messages(number), **fields}
    )


async def chat_as_before(http: httpx.AsyncClient, number: int) -> object:
    """A long prompt that was asked before: several blocks of it are in the leaf's cache."""
    body = {"model": "chat", "max_tokens": 1, "messages": messages(0, 150)}
    return await post(http, "/v1/chat/completions", body)


async def chat_in_pieces(http: httpx.AsyncClient, number: int) -> object:
    """A streamed answer, which every third caller leaves."""
    body = {"model": "chat", "max_tokens": 120, "messages": messages(number % 4), "stream": True}
    async with http.stream("POST", "/v1/chat/completions", json=body) as answer:
        async for place, _ in _numbered(answer.aiter_lines()):
            if number % 3 == 0 and place > 6:
                return None
    return None


async def chat_too_late(http: httpx.AsyncClient, number: int) -> object:
    """An answer that its deadline cuts short."""
    body = {"model": "chat", "max_tokens": 400, "messages": messages(number)}
    return await post(http, "/v1/chat/completions", body, **{"x-request-timeout-ms": "700"})


async def chat_past_its_stop(http: httpx.AsyncClient, number: int) -> object:
    """An answer of which what follows a stop string is cut off."""
    return await chat(http, number, stop=[" "], max_tokens=60)


async def chat_on_two_leaves(http: httpx.AsyncClient, number: int) -> object:
    """A model with several leaves, one of which is not there."""
    return await chat(http, number, model="chat_spread", max_tokens=40)


async def chat_with_nobody(http: httpx.AsyncClient, number: int) -> object:
    """A model whose upstream is dead."""
    return await chat(http, number, model="chat_dead")


async def chat_with_a_flaky_one(http: httpx.AsyncClient, number: int) -> object:
    """A model whose upstream now and then breaks off before it has answered."""
    return await chat(http, number, model="chat_flaky")


async def wrong(http: httpx.AsyncClient, number: int) -> object:
    """What is refused: another space, a name that does not exist, a field that is none, a text that is too long."""
    vectors = {"model": "embed", "input": text(number)}
    refused = (
        post(http, "/v1/embeddings", vectors, **{"x-zooserve-embedding-space": "another"}),
        post(http, "/v1/embeddings", {**vectors, "model": "made-up"}),
        post(http, "/v1/embeddings", {**vectors, "colour": "blue"}),
        post(http, "/v1/embeddings", {**vectors, "input": text(number, 900)}),
    )
    return await asyncio.gather(*refused, return_exceptions=True)


async def _numbered(lines: Any) -> Any:
    place = 0
    async for line in lines:
        yield place, line
        place += 1


GENTLE: tuple[Send, ...] = (
    embed, rerank, classify, rag_query, chat, embed, wrong, chat_with_nobody, classify, embed, chat_on_two_leaves,
    chat_past_its_stop, embed_sparse, chat_with_a_flaky_one, chat_as_before,
)  # fmt: skip
HEAVY: tuple[Send, ...] = (
    embed, chat_in_pieces, embed_many, rerank, chat_too_late, rag_query, chat_in_pieces, classify, chat_on_two_leaves,
    embed, chat_with_nobody, chat_in_pieces, wrong, chat, chat_past_its_stop, classify, embed_sparse,
    chat_with_a_flaky_one, rerank_many, chat_with_a_flaky_one, chat_with_a_flaky_one,
)  # fmt: skip
LOADS: dict[str, tuple[tuple[Send, ...], int, float]] = {"gentle": (GENTLE, 3, 0.2), "heavy": (HEAVY, 28, 0.0)}
"""What is sent, by how many at once, and each one's pause between two requests."""


async def run(url: str, load: str, seconds: float) -> None:
    """Send for so long."""
    kinds, callers, pause_s = LOADS[load]
    numbers = itertools.count()
    until = time.monotonic() + seconds
    async with httpx.AsyncClient(base_url=url, timeout=30, limits=httpx.Limits(max_connections=64)) as http:
        await asyncio.gather(*(_call(http, kinds, numbers, until, pause_s) for _ in range(callers)))


async def _call(
    http: httpx.AsyncClient, kinds: tuple[Send, ...], numbers: Iterator[int], until: float, pause_s: float
) -> None:
    while time.monotonic() < until:
        number = next(numbers)
        with suppress(httpx.HTTPError):
            await kinds[number % len(kinds)](http, number)
        await asyncio.sleep(pause_s)


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2], float(sys.argv[3])))
