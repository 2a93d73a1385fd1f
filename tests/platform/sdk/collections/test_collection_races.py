"""Two processes at one collection: their calls of Qdrant in every kind of order, and the name switched in between."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from qdrant_client import AsyncQdrantClient, models

from zooserve import AsyncZoo, Chunk, Document
from zooserve.errors import CollectionError

A, B = "a" * 16, "b" * 16
OLD = Document("d", ["shared", "old"])
MINE = Document("d", ["shared", "mine"])
THEIRS = Document("d", ["theirs", "shared", "and more"])


class Turns:
    """A client of Qdrant whose every call waits for this process's next turn. Takes it for a server."""

    def __init__(self, client: AsyncQdrantClient) -> None:
        self._client = client
        self.asked, self.given = asyncio.Event(), asyncio.Event()
        self.given.set()

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any, **named: Any) -> Any:
            self.asked.set()
            await self.given.wait()
            self.given.clear()
            if name == "create_payload_index":  # which the local mode warns of
                return None
            return await getattr(self._client, name)(*arguments, **named)

        return call


@asynccontextmanager
async def client_of(served: Any) -> AsyncIterator[AsyncZoo]:
    async with (
        httpx.AsyncClient(transport=httpx.MockTransport(served)) as http,
        AsyncZoo("http://zoo", http=http, retries=0) as zoo,
    ):
        yield zoo


@asynccontextmanager
async def process(served: Any, client: AsyncQdrantClient) -> AsyncIterator[tuple[Any, Turns]]:
    """A collection as another process has it, whose turns are ours to give."""
    async with client_of(served) as zoo:
        docs = zoo.collection("docs", client=client)
        store = await docs._store()
        store._is_local, turns = False, Turns(client)
        store._client = turns
        yield docs, turns


async def take_turns(tasks: list[asyncio.Task[Any]], turns: list[Turns], order: random.Random) -> list[Any]:
    """Let them make one call each time, whoever the dice names, until all are done."""
    while not all(task.done() for task in tasks):
        place = order.choice([place for place, task in enumerate(tasks) if not task.done()])
        turns[place].asked.clear()
        turns[place].given.set()
        asked = asyncio.create_task(turns[place].asked.wait())
        await asyncio.wait([asked, tasks[place]], return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
    return await asyncio.gather(*tasks, return_exceptions=True)


async def texts_in(client: AsyncQdrantClient) -> list[str]:
    records, _ = await client.scroll("docs", limit=100)
    return sorted(record.payload["text"] for record in records if record.payload)


async def met(served: Any, seed: int, before: list[Any], *work: Any) -> tuple[list[Any], list[str]]:
    """What came of the two calls, and what is stored then."""
    client = AsyncQdrantClient(":memory:")
    async with process(served, client) as (mine, my_turns), process(served, client) as (theirs, their_turns):
        for turn in (my_turns, their_turns):
            turn.given.clear()
        first = asyncio.create_task(mine.upsert(before))
        await take_turns([first], [my_turns], random.Random(0))
        tasks = [asyncio.create_task(work[0](mine)), asyncio.create_task(work[1](theirs))]
        for turn in (my_turns, their_turns):
            turn.asked.clear()
            turn.given.clear()
        done = await take_turns(tasks, [my_turns, their_turns], random.Random(seed))
        stored = await texts_in(client)
        for turn in (my_turns, their_turns):
            turn.given.set()
    await client.close()
    return done, stored


def texts_of(document: Document) -> list[str]:
    return sorted(str(chunk) for chunk in document.chunks)


@pytest.mark.parametrize("before", [[OLD], []], ids=["a document", "an empty collection"])
async def test_of_two_versions_at_once_one_is_whole_or_whoever_ends_last_is_told(served, before) -> None:
    seen: set[tuple[Any, ...]] = set()
    for seed in range(60):
        done, stored = await met(
            served, seed, before, lambda docs: docs.upsert([MINE]), lambda docs: docs.upsert([THEIRS])
        )
        told = [isinstance(one, CollectionError) for one in done]
        assert all(isinstance(one, CollectionError) for one in done if isinstance(one, BaseException)), done
        whole = stored in (texts_of(MINE), texts_of(THEIRS))
        assert whole or any(told), f"a mixture that nobody was told of, in the order {seed}: {stored}"
        assert {"mine", "theirs"} & set(stored), f"both were lost in the order {seed}"
        seen.add((whole, *told))
    assert len(seen) > 2, "the orders were not all alike"


async def test_an_upsert_and_a_delete_at_once(served) -> None:
    for seed in range(30):
        done, stored = await met(served, seed, [OLD], lambda docs: docs.upsert([MINE]), lambda docs: docs.delete("d"))
        assert not isinstance(done[1], BaseException)
        assert stored in ([], texts_of(MINE)) or isinstance(done[0], CollectionError), (seed, stored)


async def test_of_two_that_make_the_collection_hold_theirs_alone_one_is_told(served) -> None:
    for seed in range(30):
        done, stored = await met(
            served, seed, [Chunk("old", id=0)],
            lambda docs: docs.sync([Chunk("mine", id=1)]), lambda docs: docs.sync([Chunk("theirs", id=2)]),
        )  # fmt: skip
        told = any(isinstance(one, CollectionError) for one in done)
        assert stored in (["mine"], ["theirs"]) or told, (seed, stored)


async def test_tasks_of_one_client_that_meet_are_told_in_the_local_mode_too(served, tmp_path) -> None:
    async with client_of(served) as zoo:
        docs = zoo.collection("docs", path=tmp_path)
        done = await asyncio.gather(docs.upsert([MINE]), docs.upsert([THEIRS]), return_exceptions=True)
        found = {hit.text for hit in await docs.search("shared", 10)}
        mixed = found not in (set(MINE.chunks), set(THEIRS.chunks))
        assert mixed <= any(isinstance(one, CollectionError) for one in done)
        assert (await docs.upsert([MINE])).chunks == 2
        assert {hit.text for hit in await docs.search("shared", 10)} == set(MINE.chunks)


def switched(qdrant: Any) -> None:
    alias = models.CreateAlias(collection_name=f"next--{B}", alias_name="docs")
    qdrant.update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])


def texts(qdrant: Any, name: str) -> set[str]:
    return {record.payload["text"] for record in qdrant.scroll(name, limit=100)[0]}


@pytest.mark.parametrize("at", ["count", "upsert", "scroll", "delete"])
def test_a_switch_in_the_middle_of_a_sync_removes_nothing_of_the_new_collection(
    zoo, in_memory, at, monkeypatch
) -> None:
    """Whenever it comes, the one that the name leads to by then is left alone."""
    docs = in_memory
    docs.upsert([Chunk("gone", id=1), Chunk("kept", id=2)])
    qdrant = docs._address.client
    zoo.collection("next", client=qdrant, model="embed_other").upsert([Chunk("new", id=1), Chunk("newer", id=3)])
    real = getattr(qdrant, at)

    def switching(*arguments: Any, **named: Any) -> Any:
        done = real(*arguments, **named)
        switched(qdrant)
        return done

    monkeypatch.setattr(qdrant, at, switching)
    with pytest.raises(CollectionError, match=rf"docs was switched from docs--{A}.*once more"):
        docs.sync([Chunk("kept", id=2), Chunk("another", id=4)])
    monkeypatch.undo()
    assert texts(qdrant, f"next--{B}") == {"new", "newer"}
    if at in ("count", "upsert"):
        assert "gone" in texts(qdrant, f"docs--{A}"), "nothing was removed before everything was found in place"
    done = docs.sync([Chunk("kept", id=2)])
    assert texts(qdrant, f"next--{B}") == {"kept"}
    assert (done.embedded, done.removed) == (1, 2)


def test_a_switch_in_the_middle_of_a_delete_is_told(zoo, in_memory, monkeypatch) -> None:
    in_memory.upsert([Chunk("a", id=1)])
    qdrant = in_memory._address.client
    zoo.collection("next", client=qdrant, model="embed_other").upsert([Chunk("a", id=1)])
    real = qdrant.delete

    def switching(*arguments: Any, **named: Any) -> Any:
        switched(qdrant)
        return real(*arguments, **named)

    monkeypatch.setattr(qdrant, "delete", switching)
    with pytest.raises(CollectionError, match="once more"):
        in_memory.delete(1)
    monkeypatch.undo()
    assert in_memory.delete(1) == 1
