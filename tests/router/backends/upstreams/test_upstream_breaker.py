"""An upstream's circuit breaker and second tries: over a real socket where connections matter."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from zooserve.errors import BackendUnavailable, DeadlineExceeded, ServingError
from zooserve.processes.ports import reserved_ports
from zooserve_observability.metrics import RouterMetrics
from zooserve_router.backends.openai import OpenAIUpstream
from zooserve_router.backends.upstream import Upstream, client_for
from zooserve_router.breaker import BREAKER_OPEN
from zooserve_router.chat.generation import Conversation, Piece, Sampling
from zooserve_router.ways import Ways

HELLO = Conversation([{"role": "user", "content": "Hello"}], Sampling(5))
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
WHOLE = STREAM + b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'


def answer(status: int, body: bytes = b"{}", **headers: str) -> bytes:
    told = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} X\r\n{told}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


@dataclass
class Clock:
    """Time that the test moves."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Server:
    """Listens where the test wants it to, and says the same to everybody; None resets the connection."""

    port: int
    says: bytes | None = WHOLE
    asked: int = 0
    listening: asyncio.Server | None = None

    async def up(self) -> None:
        self.listening = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def down(self) -> None:
        if self.listening is not None:
            self.listening.close()
            await self.listening.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if b"content-length: " in head.lower():
                await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
            self.asked += 1
            if self.says is None:
                writer.transport.abort()
            elif not self.says:
                await reader.read()  # says nothing until its caller has left
            else:
                writer.write(self.says)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@dataclass
class Bench:
    """The client of a model at that server."""

    server: Server
    backend: OpenAIUpstream
    metrics: RouterMetrics
    clock: Clock = field(default_factory=Clock)

    async def ask(self, timeout_s: float = 30.0) -> ServingError | list[Piece]:
        try:
            return [piece async for piece in self.backend.generate(HELLO, timeout_s)]
        except ServingError as error:
            return error

    async def ask_often(self, times: int) -> list[Any]:
        return [await self.ask() for _ in range(times)]

    async def ask_often_within(self, timeout_s: float, times: int) -> list[Any]:
        return [await self.ask(timeout_s) for _ in range(times)]

    def told(self, series: str, **labels: str) -> float:
        pairs = ",".join(f'{name}="{value}"' for name, value in sorted({"endpoint": "ours", **labels}.items()))
        (line,) = [
            line for line in self.metrics.exposition().decode().splitlines() if line.startswith(f"{series}{{{pairs}}}")
        ]
        return float(line.rpartition(" ")[2])

    @property
    def state(self) -> float:
        return self.told("zooserve_breaker_state")


@pytest.fixture
async def bench(model: Any) -> AsyncIterator[Bench]:
    server, clock, metrics = Server(reserved_ports(1)[0]), Clock(), RouterMetrics(CollectorRegistry())
    way = Ways(metrics.endpoints, clock, random.Random(1)).way("ours")
    async with client_for(model()) as http:
        yield Bench(
            server,
            OpenAIUpstream(Upstream(http, model(), f"http://127.0.0.1:{server.port}/v1", {}, way)),
            metrics,
            clock,
        )
    await server.down()


async def test_an_upstream_that_nobody_listens_for_is_left_alone_and_found_again(bench: Bench) -> None:
    refused = await bench.ask_often(6)
    assert [error.code for error in refused] == ["backend_unavailable"] * 5 + [BREAKER_OPEN]
    assert bench.state == 2
    assert bench.told("zooserve_breaker_opened_total") == 1
    await bench.server.up()
    assert (await bench.ask()).code == BREAKER_OPEN
    assert bench.server.asked == 0
    bench.clock.now += 1
    assert await bench.ask() == [Piece(finish_reason="stop")]
    assert bench.state == 0


async def test_connecting_is_tried_twice_as_long_as_the_budget_lasts(bench: Bench) -> None:
    await bench.ask_often(5)
    assert bench.told("zooserve_retries_total", outcome="failed") == 3
    assert bench.told("zooserve_retries_total", outcome="denied") == 2


@pytest.mark.parametrize(
    "says",
    [None, answer(500), answer(502), answer(503), answer(504), STREAM + b'data: {"error": {"code": 500}}\n\n'],
    ids=["reset", "500", "502", "503", "504", "500 among the events"],
)
async def test_what_breaks_or_answers_5xx_is_left_alone(bench: Bench, says: bytes | None) -> None:
    bench.server.says = says
    await bench.server.up()
    await bench.ask_often(10)
    assert (bench.server.asked, bench.state) == (5, 2)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 409, 413, 422, 429, 501, 529])
async def test_a_refusal_never_opens_it(bench: Bench, status: int) -> None:
    bench.server.says = answer(status)
    await bench.server.up()
    await bench.ask_often(30)
    assert (bench.server.asked, bench.state) == (30, 0)
    assert bench.told("zooserve_breaker_opened_total") == 0


async def test_an_answer_among_failures_keeps_it_closed(bench: Bench) -> None:
    await bench.server.up()
    for _ in range(5):
        bench.server.says = answer(500)
        await bench.ask_often(4)
        bench.server.says = WHOLE
        await bench.ask()
    assert bench.state == 0


async def test_deadlines_shorter_than_usual_never_open_it(bench: Bench) -> None:
    bench.server.says = b""
    await bench.server.up()
    late = await bench.ask_often_within(0.02, times=10)
    assert {type(error) for error in late} == {DeadlineExceeded}
    assert bench.state == 0


async def test_a_list_of_models_lets_the_next_one_try_and_does_not_close_it(bench: Bench) -> None:
    await bench.ask_often(5)
    await bench.server.up()
    bench.server.says = answer(200, b'{"data": []}')
    await bench.backend.prove(5)
    assert bench.state == 2
    bench.server.says = WHOLE
    assert await bench.ask() == [Piece(finish_reason="stop")]
    assert bench.state == 0


async def test_probes_alone_find_out_that_it_is_gone(bench: Bench) -> None:
    for _ in range(5):
        with pytest.raises(BackendUnavailable, match="cannot be reached"):
            await bench.backend.prove(5)
    assert bench.state == 2
    with pytest.raises(BackendUnavailable, match="cannot be reached"):
        await bench.backend.prove(5)  # it goes through, and says what is wrong rather than that it was not sent


async def test_a_second_try_at_connecting_may_work(bench: Bench) -> None:
    class Late(httpx.AsyncBaseTransport):
        """Somebody listens from the second try on."""

        tries = 0

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            self.tries += 1
            if self.tries == 1:
                raise httpx.ConnectError("refused")
            return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=WHOLE[len(STREAM) :])

    upstream = bench.backend._upstream
    async with httpx.AsyncClient(transport=Late()) as http:
        late = OpenAIUpstream(Upstream(http, upstream.model, upstream.url, {}, upstream.way))
        assert [piece async for piece in late.generate(HELLO, 5)] == [Piece(finish_reason="stop")]
    assert bench.told("zooserve_retries_total", outcome="ok") == 1
    assert bench.state == 0
