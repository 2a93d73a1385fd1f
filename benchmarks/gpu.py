"""On an NVIDIA GPU: what holds interactive latency beside bulk, and how the encoder batches. Two tables.

A Triton of its own per arrangement, from the wheel, over the embedding encoder in `configs/gpu.pbtxt`'s place: our
Python-based ONNX Runtime backend with the CUDA provider, called with token ids, no tokenizer and no router between.
Needs onnxruntime-gpu and its CUDA libraries on LD_LIBRARY_PATH.

    python benchmarks/gpu.py [--seconds 6] [--only classes|batching] [--kind gpu|cpu]
"""

import argparse
import asyncio
import os
import random
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from counters import Counts, counts

from zooserve.processes.ports import reserved_ports
from zooserve.triton.installation import find_installation
from zooserve.triton.tensors import Tensor, encode_request
from zooserve_router.backends.wire import ConnectionPool

ROOT = Path(__file__).parents[1]
ENCODER = ROOT / "model_repository/zoo/embed_encoder/1/model.onnx"
POLICY = "default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 600000000 }"
BUCKETS = (16, 32, 64, 128, 256)
MIX = (16, 32, 64, 64, 128)
"""Token counts of the batching sweep's texts, all equally frequent, padded to their bucket already."""
INTERACTIVE_TOKENS = 32
INTERACTIVE_EVERY_S = 0.02
BULK_TOKENS = 64
BULK_IN_FLIGHT = 512
"""Rows, whatever the batch: smaller requests come from more clients."""
BULK_BATCHES = (8, 64, 256)
CLIENT_PROCESSES = 4


@dataclass(frozen=True)
class Encoder:
    """One Triton model over the encoder's file."""

    name: str
    max_batch: int = 64
    batching: str = f"dynamic_batching {{ {POLICY} }}"
    limiter: str = ""
    """What the instance declares to the rate limiter."""

    def config(self, kind: str) -> str:
        """Its config.pbtxt."""
        inputs = ", ".join(
            f'{{ name: "{name}" data_type: TYPE_INT64 dims: [ -1 ] allow_ragged_batch: true }}'
            for name in ("input_ids", "attention_mask")
        )
        return (
            f'name: "{self.name}"\nbackend: "onnxruntime"\nmax_batch_size: {self.max_batch}\n'
            f"input [ {inputs} ]\n"
            'output [ { name: "sentence_embedding" data_type: TYPE_FP32 dims: [ 384 ] } ]\n'
            f"instance_group [ {{ kind: KIND_{kind.upper()} count: 1 {self.limiter} }} ]\n{self.batching}\n"
        )


@dataclass(frozen=True)
class Arrangement:
    """How interactive and bulk traffic share the GPU."""

    title: str
    interactive: Encoder
    bulk: Encoder
    limited: bool = False

    @property
    def encoders(self) -> Sequence[Encoder]:
        """Its models, each once."""
        return tuple(dict.fromkeys((self.interactive, self.bulk)))


def arrangements() -> Sequence[Arrangement]:
    """What is compared."""
    plain = Encoder("interactive")
    found = [Arrangement("one model, one queue", plain, plain)]
    found += [Arrangement(f"two models, bulk batch up to {cap}", plain, Encoder("bulk", cap)) for cap in BULK_BATCHES]
    first, later = (f'rate_limiter {{ resources [ {{ name: "gpu" count: 1 }} ] priority: {rank} }}' for rank in (1, 10))
    limited = Encoder("interactive", limiter=first)
    for cap in BULK_BATCHES:
        title = f"two models, rate limiter with priorities, bulk batch up to {cap}"
        found.append(Arrangement(title, limited, Encoder("bulk", cap, limiter=later), limited=True))
    return found


def batchings() -> Sequence[Encoder]:
    """The batching variants, all in one server."""
    found = [Encoder("off", batching="")]
    for window_us in (0, 500, 2000, 50_000):
        window = f"max_queue_delay_microseconds: {window_us}"
        found.append(Encoder(f"window_{window_us}_us", batching=f"dynamic_batching {{ {POLICY} {window} }}"))
    preferred = f"dynamic_batching {{ {POLICY} preferred_batch_size: [ 32, 64 ] max_queue_delay_microseconds: 2000 }}"
    return [*found, Encoder("preferred_32_64_window_2000_us", batching=preferred)]


@dataclass(frozen=True)
class Server:
    """A running Triton."""

    http_port: int
    metrics_port: int

    def counts(self, model: str) -> Counts:
        """The model's counters so far."""
        return counts(f"127.0.0.1:{self.http_port}", f"127.0.0.1:{self.metrics_port}", model)


@contextmanager
def served(encoders: Sequence[Encoder], kind: str, *, limited: bool = False) -> Iterator[Server]:
    """A Triton over these encoders, every bucket of each warmed."""
    with tempfile.TemporaryDirectory(prefix="zooserve-gpu-") as scratch:
        repository = Path(scratch, "repository")
        for encoder in encoders:
            version = repository / encoder.name / "1"
            version.mkdir(parents=True)
            (version / "model.onnx").symlink_to(ENCODER)
            (version.parent / "config.pbtxt").write_text(encoder.config(kind))
        http, grpc, metrics = reserved_ports(3)
        installation = find_installation(Path(scratch), ROOT / "platform/triton-backends")
        command = [
            str(installation.binary),
            f"--model-repository={repository}",
            f"--backend-directory={installation.backends}",
            *("--http-address=127.0.0.1", f"--http-port={http}", f"--grpc-port={grpc}", "--grpc-address=127.0.0.1"),
            *("--metrics-address=127.0.0.1", f"--metrics-port={metrics}"),
            f"--backend-config=python,shm-region-prefix-name=bench{http}-",
            *(["--rate-limit=execution_count"] if limited else []),
        ]
        log = Path(scratch, "log")
        with log.open("wb") as out:
            process = subprocess.Popen(command, env=installation.environment, cwd=scratch, stdout=out, stderr=out)
        try:
            _wait(process, http, log)
            asyncio.run(_warm(http, [encoder.name for encoder in encoders]))
            yield Server(http, metrics)
        finally:
            process.terminate()
            process.wait(60)


def _wait(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready", timeout=1) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise SystemExit(log.read_text(errors="replace")[-3000:])


def _body(tokens: int, rows: int) -> tuple[bytes, int]:
    rng = np.random.default_rng(tokens * 1000 + rows)
    shape = (rows, tokens)
    ids = rng.integers(1000, 30_000, shape, dtype=np.int64).tobytes()
    mask = np.ones(shape, np.int64).tobytes()
    inputs = (Tensor("input_ids", "INT64", shape, ids), Tensor("attention_mask", "INT64", shape, mask))
    return encode_request(inputs, ("sentence_embedding",), request_id="")


class Client:
    """Sends prepared inferences to one model."""

    def __init__(self, port: int, model: str) -> None:
        self._pool = ConnectionPool("127.0.0.1", port)
        self._path = f"/v2/models/{model}/infer"

    async def send(self, body: bytes, header_length: int) -> float:
        """Seconds that one inference took."""
        began = time.perf_counter()
        headers = {"inference-header-content-length": str(header_length)}
        answer = await self._pool.exchange("POST", self._path, headers, body)
        if answer.status != 200:
            raise RuntimeError(answer.body[:300].decode(errors="replace"))
        return time.perf_counter() - began


async def _warm(port: int, models: Sequence[str]) -> None:
    for model in models:
        client = Client(port, model)
        for bucket in BUCKETS:
            for rows in (1, 2, 8):
                for _ in range(3):
                    await client.send(*_body(bucket, rows))


def closed_loop(port: int, model: str, clients: int, rows: int, tokens: Sequence[int], seconds: float) -> list[float]:
    """Latencies of `clients` that send their next inference when the last is answered; runs in a process of its own."""

    async def all_clients() -> list[float]:
        bodies = [_body(length, rows) for length in tokens]
        end = time.perf_counter() + seconds
        taken: list[float] = []

        async def client(seed: int) -> None:
            pick = random.Random(seed)
            connection = Client(port, model)
            while time.perf_counter() < end:
                taken.append(await connection.send(*pick.choice(bodies)))

        await asyncio.gather(*(client(seed) for seed in range(clients)))
        return taken

    return asyncio.run(all_clients())


def paced(port: int, model: str, seconds: float) -> list[float]:
    """Latencies of single short texts that come at a steady pace, whether or not the last is answered."""

    async def steady() -> list[float]:
        body = _body(INTERACTIVE_TOKENS, 1)
        client = Client(port, model)
        sent = []
        for _ in range(int(seconds / INTERACTIVE_EVERY_S)):
            sent.append(asyncio.create_task(client.send(*body)))
            await asyncio.sleep(INTERACTIVE_EVERY_S)
        return list(await asyncio.gather(*sent))

    return asyncio.run(steady())


def classes(pool: ProcessPoolExecutor, given: argparse.Namespace) -> None:
    """Interactive latency idle and beside bulk, per arrangement."""
    print(f"One text of {INTERACTIVE_TOKENS} tokens every {INTERACTIVE_EVERY_S * 1000:.0f} ms, beside {BULK_IN_FLIGHT}")
    print(f"bulk rows of {BULK_TOKENS} tokens in flight, in requests of one batch each. Milliseconds.\n")
    print("| arrangement | idle p50 / p95 / p99 | beside bulk p50 / p95 / p99 | p95, of idle | bulk texts/s |")
    print("|---|---|---|---|---|")
    for arrangement in arrangements():
        with served(arrangement.encoders, given.kind, limited=arrangement.limited) as server:
            rows = arrangement.bulk.max_batch
            idle = pool.submit(paced, server.http_port, arrangement.interactive.name, given.seconds).result()
            clients = BULK_IN_FLIGHT // rows // 2
            load = (server.http_port, arrangement.bulk.name, clients, rows, (BULK_TOKENS,), given.seconds + 2)
            bulk = [pool.submit(closed_loop, *load) for _ in range(2)]
            time.sleep(1)
            beside = pool.submit(paced, server.http_port, arrangement.interactive.name, given.seconds).result()
            done = sum(len(part.result()) for part in bulk) * rows
        ratio = np.quantile(beside, 0.95) / np.quantile(idle, 0.95)
        print(
            f"| {arrangement.title} | {_quantiles(idle)} | {_quantiles(beside)} | x {ratio:.1f} "
            f"| {done / (given.seconds + 2):,.0f} |",
            flush=True,
        )


def batching(pool: ProcessPoolExecutor, given: argparse.Namespace) -> None:
    """Throughput, latency and batch sizes, per variant and concurrency."""
    print(f"\nSingle texts of {', '.join(map(str, MIX))} tokens in random order.\n")
    print("| variant | clients | texts/s | p50, ms | p95, ms | rows per call | rows per run |")
    print("|---|---|---|---|---|---|---|")
    variants = batchings()
    with served(variants, given.kind) as server:
        for clients in given.clients:
            for variant in variants:
                before = server.counts(variant.name)
                share = [len(range(part, clients, CLIENT_PROCESSES)) for part in range(CLIENT_PROCESSES)]
                load = [
                    pool.submit(closed_loop, server.http_port, variant.name, count, 1, MIX, given.seconds)
                    for count in share
                    if count
                ]
                taken = [latency for part in load for latency in part.result()]
                moved = server.counts(variant.name).since(before)
                print(
                    f"| {variant.name} | {clients} | {len(taken) / given.seconds:,.0f} | {_ms(taken, 0.5)} "
                    f"| {_ms(taken, 0.95)} | {moved.rows_per_call:.1f} | {moved.rows_per_run:.1f} |",
                    flush=True,
                )


def _quantiles(taken: Sequence[float]) -> str:
    return " / ".join(_ms(taken, quantile) for quantile in (0.5, 0.95, 0.99))


def _ms(taken: Sequence[float], quantile: float) -> str:
    return f"{np.quantile(taken, quantile) * 1000:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each measurement")
    parser.add_argument("--only", choices=["classes", "batching"])
    parser.add_argument("--kind", choices=["gpu", "cpu"], default="gpu")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16, 64, 128, 256])
    given = parser.parse_args()
    print(f"{os.cpu_count()} cores\n")
    # Spawned: a fork would take the parent's event loop along.
    with ProcessPoolExecutor(CLIENT_PROCESSES + 1, mp_context=get_context("spawn")) as pool:
        if given.only != "batching":
            classes(pool, given)
        if given.only != "classes":
            batching(pool, given)


if __name__ == "__main__":
    main()
