"""Hundreds of chats at once that end in every way: nothing stays taken afterwards, and every count adds up."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import pytest
from opentelemetry.sdk.trace import Span
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from prometheus_client.parser import text_string_to_metric_families

from zooserve.errors import BackendFailed, DeadlineExceeded, Overloaded
from zooserve_router.chat.generation import Piece, Work

CHATS, AT_ONCE = 400, 24
ENDS = (
    *(("zooserve_chat_choices_ended_total", outcome) for outcome in ("finished", "cancelled", "failed")),
    *(("zooserve_wasted_tokens_total", reason) for reason in ("hang_up", "deadline", "error", "stop")),
)
"""What has to happen to some chats."""


class MoodyLeaf:
    """Writes up to thirty tokens, lets others run between them, and fails or refuses now and then."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.open = 0

    async def generate(self, work: Work, timeout_s: float) -> AsyncGenerator[Piece, None]:
        self.open += 1
        try:
            tokens, end = self._chance.randrange(30), self._chance.random()
            if end < 0.05:
                raise Overloaded("full")
            for _ in range(tokens):
                await asyncio.sleep(self._chance.choice((0, 0, 0.001, 0.003)))
                yield Piece(self._chance.choice(("a", "b", "STO", "P and", " ")))
            if end < 0.2:
                raise BackendFailed("broken")
            yield Piece("", "stop")
        finally:
            self.open -= 1


class Client:
    """One connection: sends a chat, reads so many messages, then leaves; or stays to the end."""

    def __init__(self, chance: random.Random) -> None:
        self.status = 0
        self.whole = False
        self.broken = False
        """Whether its stream told of an error."""
        self._left = asyncio.Event()
        self._reads = chance.choice((0, 1, 2, 5, 20, *[10**6] * 5))
        fields = {"stream": chance.random() < 0.7, "n": chance.choice((1, 1, 1, 3)), "stop": ["STOP"]}
        body = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 40, **fields}
        self._messages = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
        self.headers = [(b"authorization", b"Bearer %d" % chance.randrange(4))]
        if chance.random() < 0.3:
            self.headers.append((b"x-request-timeout-ms", b"%d" % chance.choice((1, 20, 60, 100))))
        if self._reads == 0:
            asyncio.get_running_loop().call_later(chance.random() / 50, self._left.set)

    async def receive(self) -> dict[str, Any]:
        if self._messages:
            return self._messages.pop()
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        self.status = message.get("status", self.status)
        self.whole = message["type"] == "http.response.body" and not message.get("more_body")
        self.broken = self.broken or b'"error"' in message.get("body", b"")
        self._reads -= 1
        if self._reads == 0:
            self._left.set()
        await asyncio.sleep(0)


@pytest.mark.parametrize("seed", [1, 2])
async def test_hundreds_of_chats_that_end_in_every_way_add_up(edge, monkeypatch, seed) -> None:
    chance = random.Random(seed)
    leaf = MoodyLeaf(chance)
    monkeypatch.setattr(edge.leaf, "generate", leaf.generate)
    begun: list[Span] = []
    monkeypatch.setattr(SimpleSpanProcessor, "on_start", lambda self, span, parent_context=None: begun.append(span))
    edge.queue.most_waiting = AT_ONCE // 2
    gate = asyncio.Semaphore(AT_ONCE)
    clients: list[Client] = []

    async def chat() -> None:
        async with gate:
            client = Client(chance)
            clients.append(client)
            scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "query_string": b""}
            with suppress(DeadlineExceeded):  # cuts the connection of a client that did not read in time
                await edge.app({**scope, "headers": client.headers}, client.receive, client.send)

    counts: Counter[Any] = Counter()
    while not all(counts[end] for end in ENDS):  # which chats a deadline meets depends on the machine
        await asyncio.gather(*(chat() for _ in range(CHATS)))
        counts = counted(edge)
    while edge.budget.taken_tokens:  # noqa: ASYNC110 - what was left settles in the next turn of the loop
        await asyncio.sleep(0)
    assert (leaf.open, edge.queue.waiting, edge.budget.taken_requests) == (0, 0, 0)
    counts = counted(edge)
    assert counts["zooserve_chat_choices_issued_total"] == counts["zooserve_chat_choices_ended_total"] > 0
    assert counts["zooserve_requests_total"] == len(clients)
    assert (
        counts["zooserve_requests_total", "ok"] >= sum(client.whole and client.status == 200 for client in clients) / 2
    )
    assert counts["zooserve_requests_total", "DeadlineExceeded"] >= sum(client.status == 504 for client in clients)
    assert_spans_ended(edge, begun, len(clients))


def assert_spans_ended(edge: Any, begun: list[Span], requests: int) -> None:
    """Every span that was begun has ended, once, within its request; each request has one of the whole of it."""
    assert [span.name for span in begun if span.end_time is None] == []
    ids = [span.context.span_id for span in edge.spans]
    assert len(ids) == len(set(ids)) == len(begun)
    wholes = {span.context.trace_id: span for span in edge.spans if span.parent is None}
    assert len(wholes) == requests
    for span in edge.spans:
        whole = wholes[span.context.trace_id]
        assert whole.name == "zooserve.request"
        assert whole.start_time <= span.start_time <= span.end_time <= whole.end_time, span.name


def counted(edge: Any) -> Counter[Any]:
    """Every counter's sum, and its sums by outcome or reason."""
    sums: Counter[Any] = Counter()
    for family in text_string_to_metric_families(edge.metrics.exposition().decode()):
        for sample in family.samples:
            sums[sample.name] += int(sample.value)
            for label in ("outcome", "reason"):
                if label in sample.labels:
                    sums[sample.name, sample.labels[label]] += int(sample.value)
    return sums
