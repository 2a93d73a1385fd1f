"""Do batches form? Single-text clients against a running zoo: texts/s, latency, rows per run, beside raw ONNX Runtime.

    python benchmarks/batching.py --http 127.0.0.1:8001 --metrics 127.0.0.1:8003

Served and raw rounds alternate on the same cores, the medians are compared. `per call` is Triton's own statistic:
requests that it handed to the encoder at once. `per run` counts rows per run of ONNX Runtime: a call with texts of
several buckets takes a run for each.
"""

import argparse
import asyncio
import json
import random
import statistics
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import aiohttp
import numpy as np
import onnxruntime as ort
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer

from zooserve.triton.tensors import encode_request, text_tensor
from zooserve_ensembles.buckets import BUCKETS, padded

WORDS = (
    "the model reads a question about open files and answers with what it found in the manual of this system".split()
)
BATCH = 32


@dataclass(frozen=True)
class Count:
    """The encoder's counters at one moment."""

    rows: int
    calls: int
    runs: int


@dataclass(frozen=True)
class Round:
    """One workload, measured."""

    texts: str
    clients: int
    texts_per_s: float
    p50_ms: float
    p95_ms: float
    rows_per_call: float
    rows_per_run: float
    raw_texts_per_s: float

    @property
    def of_raw(self) -> float:
        """Throughput as a share of raw ONNX Runtime's."""
        return self.texts_per_s / self.raw_texts_per_s


def main() -> None:
    """Measure each workload and print one table."""
    arguments = _arguments()
    workloads = {"one bucket (32)": _texts([24], 512), "mixed": _texts([8, 22, 45, 90, 180], 512)}
    raw = RawEncoder(arguments.repository)
    rounds = [
        _measured(name, texts, clients, raw, arguments)
        for name, texts in workloads.items()
        for clients in arguments.clients
    ]
    _show(rounds)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(one) | {"of_raw": one.of_raw} for one in rounds], indent=1))


class RawEncoder:
    """The same file and the same texts in this process, sorted by bucket, in batches of 32."""

    def __init__(self, repository: Path) -> None:
        options = ort.SessionOptions()
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = ort.InferenceSession(str(repository / "embed_encoder/1/model.onnx"), options)
        self._tokenizer = Tokenizer.from_file(str(repository / "embed_tokenizer/1/tokenizer.json"))
        self._tokenizer.enable_truncation(BUCKETS[-1])
        self._tokenizer.no_padding()

    def texts_per_s(self, texts: Sequence[str], seconds: float) -> float:
        """Throughput over whole passes of a sample, tokenizing not counted."""
        rows = sorted((encoded.ids for encoded in self._tokenizer.encode_batch(list(texts))), key=len)
        batches = [padded(rows[start : start + BATCH])[:2] for start in range(0, len(rows), BATCH)]
        random.Random(0).shuffle(batches)
        done, started = 0, time.perf_counter()
        while time.perf_counter() - started < seconds:
            ids, mask = batches[done % len(batches)]
            self._session.run(["sentence_embedding"], {"input_ids": ids, "attention_mask": mask})
            done += 1
        return done * BATCH / (time.perf_counter() - started)


def _measured(name: str, texts: Sequence[str], clients: int, raw: RawEncoder, arguments: argparse.Namespace) -> Round:
    served, bare, latencies = [], [], []
    asyncio.run(_load(arguments.http, texts, clients, 1.0))
    before = _counters(arguments)
    for _ in range(arguments.rounds):
        bare.append(raw.texts_per_s(texts, arguments.seconds))
        rate, took = asyncio.run(_load(arguments.http, texts, clients, arguments.seconds))
        served.append(rate)
        latencies += took
    after = _counters(arguments)
    rows = after.rows - before.rows
    p50, p95 = np.percentile(latencies, [50, 95]) * 1e3
    return Round(
        name,
        clients,
        statistics.median(served),
        float(p50),
        float(p95),
        rows / (after.calls - before.calls),
        rows / (after.runs - before.runs),
        statistics.median(bare),
    )


async def _load(http: str, texts: Sequence[str], clients: int, seconds: float) -> tuple[float, list[float]]:
    latencies: list[float] = []
    started = time.perf_counter()

    async def client(session: aiohttp.ClientSession, own: Sequence[str]) -> None:
        turn = 0
        while time.perf_counter() - started < seconds:
            body, length = encode_request([text_tensor("text", [own[turn % len(own)]])], ["embedding"], request_id="")
            headers = {"Inference-Header-Content-Length": str(length)}
            sent = time.perf_counter()
            async with session.post(f"http://{http}/v2/models/embed/infer", data=body, headers=headers) as answer:
                await answer.read()
                answer.raise_for_status()
            latencies.append(time.perf_counter() - sent)
            turn += 1

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, headers={"Accept-Encoding": "identity"}) as session:
        await asyncio.gather(*(client(session, texts[number::clients]) for number in range(clients)))
    return len(latencies) / (time.perf_counter() - started), latencies


def _counters(arguments: argparse.Namespace) -> Count:
    with urllib.request.urlopen(f"http://{arguments.http}/v2/models/embed_encoder/stats") as answer:
        stats = json.load(answer)["model_stats"][0]
    with urllib.request.urlopen(f"http://{arguments.metrics}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    runs = next(line for line in lines if line.startswith('zooserve_onnx_runs{model="embed_encoder"'))
    return Count(stats["inference_count"], stats["execution_count"], int(float(runs.rsplit(" ", 1)[1])))


def _texts(lengths: Sequence[int], count: int) -> list[str]:
    rng = random.Random(7)
    return [" ".join(rng.choices(WORDS, k=lengths[number % len(lengths)])) for number in range(count)]


def _show(rounds: Sequence[Round]) -> None:
    table = Table(title="embed, one text per request")
    for column in ("texts", "clients", "texts/s", "p50 ms", "p95 ms", "per call", "per run", "raw texts/s", "of raw"):
        table.add_column(column, justify="right")
    for one in rounds:
        numbers = (one.texts_per_s, one.p50_ms, one.p95_ms, one.rows_per_call, one.rows_per_run, one.raw_texts_per_s)
        table.add_row(one.texts, str(one.clients), *(f"{number:.1f}" for number in numbers), f"{one.of_raw:.2f}")
    Console(width=120).print(table)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--http", required=True, help="host:port of the zoo's HTTP endpoint")
    parser.add_argument("--metrics", required=True, help="host:port of the zoo's metrics endpoint")
    parser.add_argument("--repository", type=Path, default=Path("model_repository/zoo"))
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--seconds", type=float, default=4.0, help="of each served and each raw round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    return parser.parse_args()


if __name__ == "__main__":
    main()
