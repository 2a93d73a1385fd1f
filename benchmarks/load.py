"""Closed-loop load over loopback: N clients, each sending its next request when the last one is answered."""

import argparse
import asyncio
import itertools
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import aiohttp
import numpy as np
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput

from zooserve.processes.state import StateFolder
from zooserve.settings import Settings

__all__ = [
    "Call",
    "Measured",
    "add_addresses",
    "direct_embed",
    "embeddings_call",
    "one_by_one",
    "percentile",
    "run_load",
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


def add_addresses(parser: argparse.ArgumentParser) -> None:
    """--router, --zoo and --zoo-metrics; left out, those of the platform that runs from the state folder."""
    state = StateFolder(Settings().resolved().state_dir).read_state()
    running = state if state is not None and state.is_running else None
    for name, running_at, text in (
        ("--router", f"http://{running.router}" if running else None, "the router's base URL"),
        ("--zoo", running.zoo_http if running else None, "host:port of Triton's HTTP endpoint"),
        ("--zoo-metrics", running.zoo_metrics if running else None, "host:port of Triton's metrics endpoint"),
    ):
        parser.add_argument(name, default=running_at, required=running_at is None, help=text)


def percentile(values: Sequence[float], quantile: float) -> float:
    """The value below which that share of the values lies; the median by `statistics` for 0.5."""
    if quantile == 0.5:
        return statistics.median(values)
    return float(np.quantile(np.asarray(values), quantile))


def texts_of_words(words: int, count: int, seed: int = 7) -> list[str]:
    """`count` texts of `words` random words each."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, size=words)) for _ in range(count)]


def embeddings_call(router: str, text: str) -> Call:
    """One text to /v1/embeddings as openai-python sends it (base64)."""
    body = json.dumps({"model": "embed", "input": text, "encoding_format": "base64"}).encode()
    return Call(f"{router}/v1/embeddings", body, {"Content-Type": "application/json"})


def direct_embed(zoo: str, text: str, model: str = "embed") -> Call:
    """The same text to the same ensemble on Triton, binary tensors both ways."""
    tensor = InferInput("text", [1, 1], "BYTES")
    tensor.set_data_from_numpy(np.array([[text.encode()]], dtype=np.object_))
    outputs = [InferRequestedOutput(name, binary_data=True) for name in ("embedding", "tokens")]
    body, header_length = InferenceServerClient.generate_request_body([tensor], outputs=outputs)
    headers = {
        "Content-Type": "application/octet-stream",
        "Inference-Header-Content-Length": str(header_length),
        "Accept-Encoding": "identity",
    }
    return Call(f"http://{zoo}/v2/models/{model}/infer", bytes(body), headers)


async def run_load(calls: Sequence[Call], concurrency: int, seconds: float) -> Measured:
    """Send `calls` round and round from `concurrency` clients for `seconds`."""
    latencies: list[float] = []
    failed = 0
    upcoming = itertools.cycle(calls)
    connector = aiohttp.TCPConnector(limit=concurrency)
    async with aiohttp.ClientSession(connector=connector) as session:
        end = time.perf_counter() + seconds

        async def client() -> None:
            nonlocal failed
            while time.perf_counter() < end:
                call = next(upcoming)
                started = time.perf_counter()
                async with session.post(call.url, data=call.body, headers=call.headers) as answer:
                    await answer.read()
                    if answer.status == 200:
                        latencies.append(time.perf_counter() - started)
                    else:
                        failed += 1

        started = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(concurrency)))
        return Measured(time.perf_counter() - started, latencies, failed)


async def one_by_one(paths: dict[str, Callable[[int], Call]], count: int) -> dict[str, list[float]]:
    """Concurrency 1, the paths taking turns request by request: seconds per request of each."""
    taken: dict[str, list[float]] = {name: [] for name in paths}
    async with aiohttp.ClientSession() as session:
        for index in range(count):
            for name, call_of in paths.items():
                call = call_of(index)
                started = time.perf_counter()
                async with session.post(call.url, data=call.body, headers=call.headers) as answer:
                    await answer.read()
                    answer.raise_for_status()
                taken[name].append(time.perf_counter() - started)
    return taken
