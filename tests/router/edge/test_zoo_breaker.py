"""The way to the zoo's Triton, over real sockets: what opens its breaker, what never does, who is let through."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import numpy as np
import orjson
import pytest
from prometheus_client import CollectorRegistry

from zooserve.errors import BackendUnavailable, DeadlineExceeded, ServingError
from zooserve.processes.ports import reserved_ports
from zooserve.triton.tensors import InferenceAnswer, text_tensor
from zooserve_observability.metrics import RouterMetrics
from zooserve_router.backends.wire import ConnectionPool
from zooserve_router.backends.zoo import Inference, ZooBackend
from zooserve_router.breaker import BREAKER_OPEN
from zooserve_router.ways import Ways


def answer(status: int, body: bytes, headers: str = "") -> bytes:
    return f"HTTP/1.1 {status} X\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


def tritons(status: int, text: str) -> bytes:
    return answer(status, orjson.dumps({"error": text}))


def inference_answer() -> bytes:
    output = {"name": "embedding", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}
    header = orjson.dumps({"model_name": "embed", "model_version": "1", "outputs": [output]})
    body = header + np.array([1, 2], dtype="<f4").tobytes()
    return answer(200, body, f"Inference-Header-Content-Length: {len(header)}\r\n")


@dataclass
class Clock:
    """Time that the test moves."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Triton:
    """Says the same to everybody; None resets the connection, b"" says nothing."""

    port: int
    says: bytes | None = field(default_factory=inference_answer)
    hangs: bytes = b"GET nothing"
    """Whoever asks for this gets no answer."""
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
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
                self.asked += 1
                if self.says is None:
                    writer.transport.abort()
                    return
                if self.hangs in head:
                    await reader.read()  # until its caller has left
                    return
                writer.write(self.says)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@dataclass
class Bench:
    """The router's backend at that Triton."""

    triton: Triton
    zoo: ZooBackend
    metrics: RouterMetrics
    clock: Clock

    async def ask(
        self, model: str = "embed", *, is_probe: bool = False, timeout_s: float = 5.0
    ) -> ServingError | InferenceAnswer:
        text = (text_tensor("text", ["hi"]),)
        try:
            return await self.zoo.infer(Inference(model, text, ("embedding",), "req_1", timeout_s, is_probe=is_probe))
        except ServingError as error:
            return error

    async def codes(self, times: int) -> list[str | None]:
        answers = [await self.ask() for _ in range(times)]
        return [each.code if isinstance(each, ServingError) else None for each in answers]

    def told(self, series: str, **labels: str) -> float:
        pairs = ",".join(f'{name}="{value}"' for name, value in sorted({"endpoint": "zoo", **labels}.items()))
        lines = self.metrics.exposition().decode().splitlines()
        (line,) = [line for line in lines if line.startswith(f"{series}{{{pairs}}}")]
        return float(line.rpartition(" ")[2])

    @property
    def state(self) -> float:
        return self.told("zooserve_breaker_state")


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    triton, clock, metrics = Triton(reserved_ports(1)[0]), Clock(), RouterMetrics(CollectorRegistry())
    pool = ConnectionPool("127.0.0.1", triton.port)
    way = Ways(metrics.endpoints, clock, random.Random(1)).way("zoo")
    yield Bench(triton, ZooBackend(pool, way, grace_s=0.02), metrics, clock)
    pool.close()
    await triton.down()
    await asyncio.sleep(0.01)  # the connections' own turn to end


async def test_a_triton_that_is_down_is_left_alone_and_found_again_after_the_pause(bench: Bench) -> None:
    assert await bench.codes(7) == ["backend_unavailable"] * 5 + [BREAKER_OPEN] * 2
    assert bench.state == 2
    await bench.triton.up()
    assert await bench.codes(1) == [BREAKER_OPEN]
    assert bench.triton.asked == 0
    bench.clock.now += 1
    assert bench.zoo.is_mistrusted
    assert await bench.codes(2) == [None, None]
    assert bench.state == 0
    assert not bench.zoo.is_mistrusted


async def test_a_probe_finds_a_restarted_triton_within_the_pause_and_everybody_is_let_through(bench: Bench) -> None:
    await bench.codes(5)
    assert isinstance(await bench.ask(is_probe=True), BackendUnavailable)
    await bench.triton.up()
    assert isinstance(await bench.ask(is_probe=True), InferenceAnswer)
    assert bench.state == 0
    assert await bench.codes(1) == [None]


async def test_a_probe_that_fails_says_what_is_wrong_and_not_that_it_was_not_sent(bench: Bench) -> None:
    await bench.codes(5)
    failed = await bench.ask(is_probe=True)
    assert isinstance(failed, BackendUnavailable)
    assert "cannot be reached" in failed.message
    assert failed.code == "backend_unavailable"


@pytest.mark.parametrize(
    "says",
    [None, answer(502, b"<html>bad gateway"), answer(503, b""), answer(500, b"null"), b"SSH-2.0-OpenSSH\r\n"],
    ids=["reset", "somebody's 502", "somebody's 503", "somebody's 500", "no HTTP"],
)
async def test_whoever_is_not_triton_is_left_alone(bench: Bench, says: bytes | None) -> None:
    bench.triton.says = says
    await bench.triton.up()
    await bench.codes(10)
    assert bench.state == 2


@pytest.mark.parametrize(
    "says",
    [
        tritons(503, "[request id: r] Exceeds maximum queue size"),
        tritons(503, "[request id: r] Request timeout expired"),
        tritons(500, "embed_encoder version 1: out of memory"),
        tritons(500, "Stub process 'embed_tokenizer_0' is not healthy."),
        tritons(400, "Request for unknown model: 'embed' is not found"),
        tritons(400, "unexpected shape for input"),
        answer(404, b""),
        answer(429, b""),
    ],
    ids=["queue full", "queue timeout", "stage failed", "stub dead", "model gone", "refused", "404", "429"],
)
async def test_what_triton_says_of_one_model_never_takes_the_others_with_it(bench: Bench, says: bytes) -> None:
    bench.triton.says = says
    await bench.triton.up()
    await bench.codes(30)
    assert (bench.state, bench.triton.asked >= 30) == (0, True)
    assert bench.told("zooserve_breaker_opened_total") == 0


async def test_a_triton_that_never_answers_is_left_alone(bench: Bench) -> None:
    bench.triton.says = b""
    await bench.triton.up()
    for _ in range(5):
        await bench.ask(timeout_s=0.01)  # and then the grace, in which Triton drops what it could not begin
    assert bench.state == 2


async def test_a_model_that_hangs_takes_no_other_with_it(bench: Bench) -> None:
    bench.triton.hangs = b"/models/hanging/"
    await bench.triton.up()
    hanging = [asyncio.create_task(bench.ask("hanging", timeout_s=2.0)) for _ in range(10)]
    while bench.triton.asked < len(hanging):  # noqa: ASYNC110 (the server's turn)
        await asyncio.sleep(0)
    assert await bench.codes(1) == [None]
    assert {type(each) for each in await asyncio.gather(*hanging)} == {DeadlineExceeded}
    assert bench.state == 0
    assert await bench.codes(1) == [None]


async def test_callers_that_leave_never_open_it(bench: Bench) -> None:
    bench.triton.says = b""
    await bench.triton.up()
    for asked in range(20):
        leaving = asyncio.create_task(bench.ask())
        while bench.triton.asked == asked:  # noqa: ASYNC110 (the server's turn)
            await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
    assert bench.state == 0


async def test_of_a_hundred_callers_after_the_pause_one_is_sent(bench: Bench) -> None:
    await bench.codes(5)
    await bench.triton.up()
    bench.clock.now += 1
    answers = await asyncio.gather(*(bench.ask() for _ in range(100)))
    assert sum(isinstance(each, InferenceAnswer) for each in answers) == bench.triton.asked == 1
    assert {each.code for each in answers if isinstance(each, ServingError)} == {BREAKER_OPEN}
    assert bench.state == 0


async def test_second_tries_stop_when_their_budget_is_spent(bench: Bench) -> None:
    bench.triton.says = None
    await bench.triton.up()
    await bench.codes(5)
    assert bench.triton.asked == 5 + 3
    assert bench.told("zooserve_retries_total", outcome="failed") == 3
    assert bench.told("zooserve_retries_total", outcome="denied") == 2
    assert bench.told("zooserve_retries_total", outcome="ok") == 0
