"""Load over loopback: N clients that each send when their last request is answered, or a request at every beat."""

import argparse
import asyncio
import itertools
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from zooserve.processes.state import StateFolder
from zooserve.settings import Settings
from zooserve.triton.tensors import Tensor, encode_request, text_tensor
from zooserve_router.backends.wire import ConnectionPool
from zooserve_router.backends.zoo import HEADER_LENGTH

__all__ = [
    "Call",
    "Clients",
    "Measured",
    "add_addresses",
    "direct",
    "direct_embed",
    "embeddings_call",
    "one_by_one",
    "percentile",
    "rerank_call",
    "run_load",
    "steady",
    "texts_of_words",
]

WORDS = (
    "query index vector model server batch token latency cache request answer document search rank score "
    "memory thread kernel graph tensor shape queue stream router replica deadline budget weight label"
).split()


@dataclass(frozen=True)
class Call:
    """One prebuilt HTTP request, so that the client's own work is the same small amount on every path."""

    url: str
    body: bytes
    headers: dict[str, str]


@dataclass(frozen=True)
class Measured:
    """What one load run took."""

    seconds: float
    latencies_s: list[float]
    failed: int

    @property
    def per_second(self) -> float:
        """Answered requests per second."""
        return len(self.latencies_s) / self.seconds

    def ms(self, quantile: float) -> float:
        """A latency percentile in milliseconds."""
        return percentile(self.latencies_s, quantile) * 1000


def add_addresses(parser: argparse.ArgumentParser, *, needed: bool = True) -> None:
    """--router, --zoo and --zoo-metrics; left out, those of the platform that runs from the state folder."""
    state = StateFolder(Settings().resolved().state_dir).read_state()
    running = state if state is not None and state.is_running else None
    for name, running_at, text in (
        ("--router", f"http://{running.router}" if running else None, "the router's base URL"),
        ("--zoo", running.zoo_http if running else None, "host:port of Triton's HTTP endpoint"),
        ("--zoo-metrics", running.zoo_metrics if running else None, "host:port of Triton's metrics endpoint"),
    ):
        parser.add_argument(name, default=running_at, required=needed and running_at is None, help=text)


def percentile(values: Sequence[float], quantile: float) -> float:
    """The value below which that share of the values lies; the median by `statistics` for 0.5."""
    if quantile == 0.5:
        return statistics.median(values)
    return float(np.quantile(np.asarray(values), quantile))


def texts_of_words(words: int, count: int, seed: int = 7) -> list[str]:
    """`count` texts of `words` random words each."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, size=words)) for _ in range(count)]


def embeddings_call(router: str, *texts: str, slo_class: str | None = None) -> Call:
    """Texts to /v1/embeddings as openai-python sends them (base64)."""
    wanted = texts[0] if len(texts) == 1 else list(texts)
    body = json.dumps({"model": "embed", "input": wanted, "encoding_format": "base64"}).encode()
    return Call(f"{router}/v1/embeddings", body, _headers(slo_class))


def rerank_call(router: str, query: str, documents: Sequence[str], slo_class: str | None = None) -> Call:
    """Documents to /v1/rerank."""
    body = json.dumps({"model": "rerank", "query": query, "documents": list(documents)}).encode()
    return Call(f"{router}/v1/rerank", body, _headers(slo_class))


def _headers(slo_class: str | None) -> dict[str, str]:
    return {"Content-Type": "application/json"} | ({"x-zooserve-class": slo_class} if slo_class else {})


def direct_embed(zoo: str, *texts: str, model: str = "embed", timeout_s: float | None = None) -> Call:
    """The same texts to the same ensemble on Triton, binary tensors both ways."""
    return direct(zoo, model, (text_tensor("text", texts),), ("embedding", "tokens"), timeout_s)


def direct(
    zoo: str, model: str, inputs: Sequence[Tensor], outputs: Sequence[str], timeout_s: float | None = None
) -> Call:
    """One inference of a model on Triton, as the router sends it."""
    timeout_us = None if timeout_s is None else int(timeout_s * 1e6)
    body, header_length = encode_request(inputs, outputs, request_id="bench", timeout_us=timeout_us)
    return Call(f"http://{zoo}/v2/models/{model}/infer", body, {HEADER_LENGTH: str(header_length)})


class Clients:
    """Sends calls over kept connections: the router's own HTTP client, the cheapest that this repository has."""

    def __init__(self) -> None:
        self._pools: dict[str, ConnectionPool] = {}

    async def send(self, call: Call) -> int:
        """The status of the answer, which is read whole."""
        address, _, path = call.url.removeprefix("http://").partition("/")
        if address not in self._pools:
            host, _, port = address.rpartition(":")
            self._pools[address] = ConnectionPool(host, int(port))
        return (await self._pools[address].exchange("POST", f"/{path}", call.headers, call.body)).status

    def close(self) -> None:
        """Close the connections."""
        for pool in self._pools.values():
            pool.close()


async def run_load(calls: Sequence[Call], concurrency: int, seconds: float) -> Measured:
    """Send `calls` round and round from `concurrency` clients for `seconds`."""
    latencies: list[float] = []
    failed = 0
    upcoming = itertools.cycle(calls)
    clients = Clients()
    started = time.perf_counter()
    end = started + seconds

    async def client() -> None:
        nonlocal failed
        while time.perf_counter() < end:
            sent = time.perf_counter()
            if await clients.send(next(upcoming)) == 200:
                latencies.append(time.perf_counter() - sent)
            else:
                failed += 1

    await asyncio.gather(*(client() for _ in range(concurrency)))
    clients.close()
    return Measured(time.perf_counter() - started, latencies, failed)


async def steady(calls: Sequence[Call], every_s: float, seconds: float) -> Measured:
    """Send a call every `every_s`, whatever became of those before it; a latency counts from when it was due."""
    latencies: list[float] = []
    failed = 0
    clients = Clients()
    started = time.perf_counter()

    async def one(number: int) -> None:
        nonlocal failed
        due = started + number * every_s
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        if await clients.send(calls[number % len(calls)]) == 200:
            latencies.append(time.perf_counter() - due)
        else:
            failed += 1

    await asyncio.gather(*(one(number) for number in range(int(seconds / every_s))))
    clients.close()
    return Measured(time.perf_counter() - started, latencies, failed)


async def one_by_one(paths: dict[str, Callable[[int], Call]], count: int) -> dict[str, list[float]]:
    """Concurrency 1, the paths taking turns request by request: seconds per request of each."""
    taken: dict[str, list[float]] = {name: [] for name in paths}
    clients = Clients()
    for index in range(count):
        for name, call_of in paths.items():
            call = call_of(index)
            started = time.perf_counter()
            status = await clients.send(call)
            taken[name].append(time.perf_counter() - started)
            if status != 200:
                raise RuntimeError(f"{name} answered {status}")
    clients.close()
    return taken
