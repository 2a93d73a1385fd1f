"""Callers who leave: in the middle of an upload, in the middle of an answer. And uploads of 50 MB."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from rag_app.app import MAX_DOCUMENT_BYTES, Settings, create
from rag_app.rag import Source

from zooserve.sdk import Upserted

GONE = {"type": "http.disconnect"}


class Caller:
    """Speaks ASGI to the service, message by message, so that it can leave wherever it likes."""

    def __init__(self, method: str, path: str, *sent: dict[str, Any], headers: tuple[tuple[bytes, bytes], ...] = ()):
        self.scope = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1",
            "method": method, "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
            "scheme": "http", "server": ("rag", 80), "client": ("caller", 1),
            "headers": [(b"content-type", b"application/json"), *headers],
        }  # fmt: skip
        self._sent = list(sent)
        self.read = 0
        self.left = asyncio.Event()
        self.told: list[dict[str, Any]] = []

    async def receive(self) -> dict[str, Any]:
        if self._sent:
            message = self._sent.pop(0)
            self.read += len(message.get("body", b""))
            return message
        await self.left.wait()
        return GONE

    async def send(self, message: dict[str, Any]) -> None:
        self.told.append(message)
        if b"event: text" in message.get("body", b""):
            self.left.set()

    @property
    def status(self) -> int | None:
        return next((message["status"] for message in self.told if "status" in message), None)


def part(body: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


@pytest.fixture
async def app(tmp_path):
    made = create(Settings(tmp_path / "data", zoo_url="http://127.0.0.1:9"))
    async with made.router.lifespan_context(made):
        yield made


@pytest.fixture
def stored(app, monkeypatch) -> list[Any]:
    """What comes as far as being stored."""
    kept: list[Any] = []

    async def upsert(document: Any, timeout_s: float) -> Upserted:
        kept.append(document)
        return Upserted(embedded=len(document.chunks))

    monkeypatch.setattr(app.state.rag._documents, "upsert", upsert)
    return kept


async def test_half_a_document_replaces_none(app, stored) -> None:
    caller = Caller("PUT", "/documents/ducks", part(b"Ducks sleep on "), GONE)
    await app(caller.scope, caller.receive, caller.send)
    assert stored == []
    assert caller.status == 400
    whole = Caller("PUT", "/documents/ducks", part(b"Ducks sleep on "), part(b"the pond.", more=False))
    await app(whole.scope, whole.receive, whole.send)
    assert whole.status == 200
    assert [document.chunks for document in stored] == [["Ducks sleep on the pond."]]


async def test_a_document_that_announces_50_megabytes_is_refused_unread(app, stored) -> None:
    length = (b"content-length", b"50000000")
    caller = Caller("PUT", "/documents/ducks", *[part(b"quack " * 10_000)] * 800, headers=(length,))
    await app(caller.scope, caller.receive, caller.send)
    assert (caller.status, caller.read, stored) == (413, 0, [])


async def test_of_50_megabytes_that_are_not_announced_no_more_is_read_than_is_kept(app, stored) -> None:
    caller = Caller("PUT", "/documents/ducks", *[part(b"quack " * 10_000)] * 800)
    await app(caller.scope, caller.receive, caller.send)
    assert (caller.status, stored) == (413, [])
    assert caller.read <= MAX_DOCUMENT_BYTES + 60_000


async def test_a_caller_who_leaves_in_the_middle_of_an_answer_ends_its_writing(app, monkeypatch) -> None:
    ended: list[str] = []

    class Endless:
        def __aiter__(self) -> "Endless":
            return self

        async def __anext__(self) -> str:
            await asyncio.sleep(0)
            return "quack "

    @asynccontextmanager
    async def answer(question: str, sources: list[Source]) -> AsyncIterator[Endless]:
        try:
            yield Endless()
        finally:
            ended.append(question)

    async def find(question: str) -> list[Source]:
        return [Source(1, "ducks", "Ducks.", 0.9)]

    monkeypatch.setattr(app.state.rag, "answer", answer)
    monkeypatch.setattr(app.state.rag, "find", find)
    asked = json.dumps({"question": "Where do ducks sleep?"}).encode()
    caller = Caller("POST", "/ask", part(asked, more=False))
    await asyncio.wait_for(app(caller.scope, caller.receive, caller.send), 60)
    assert ended == ["Where do ducks sleep?"]
    body = b"".join(message.get("body", b"") for message in caller.told)
    assert b"event: text" in body
    assert b"event: end" not in body
