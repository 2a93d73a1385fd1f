"""On NVIDIA GPUs: real passages through `embed_bulk`, text in and vectors out, interactive latency beside it.

    python benchmarks/bulk_gpu.py --passages FILE [--gpus 2] [--seconds 4] [--record FILE] [--kind gpu|cpu]

The committed ensembles on a Triton of their own, encoders on the GPU, called without the router: texts of 64, 128 and
256 tokens, cut from real passages (a file of JSON lines with `text`, as `real_chunks.py` keeps), in requests as large
as the router's chunks. What is compared: how many tokenizer instances stand before the encoder and how large a request
is, for each length of text; beside each, an interactive text every 20 ms. Before them raw ONNX Runtime on the same
GPU, its tokenizer and its encoder by themselves. With several GPUs: a Triton on each, all loaded at once.

Needs onnxruntime-gpu and its CUDA libraries on LD_LIBRARY_PATH.
"""

import argparse
import asyncio
import json
import os
import random
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from load import direct_embed, percentile, run_load, steady
from real_chunks import TOKENIZER, quick_count, token_lengths
from tokenizers import Tokenizer

from zooserve.processes.ports import reserved_ports
from zooserve.triton.installation import find_installation
from zooserve.triton.server import Addresses, TritonServer

ROOT = Path(__file__).parents[1]
ZOO = ROOT / "model_repository/zoo"
LENGTHS = (64, 128, 256)
TEXTS = 4096
"""Of each length, all different."""
PROCESSES = 4
"""That send bulk, to each GPU."""
TOKENS_IN_FLIGHT = 131_072
"""Per GPU, whatever a request holds: half of what one router replica admits as bulk."""
INTERACTIVE_EVERY_S = 0.02
INTERACTIVE_TOKENS = 30
RAW_BATCH = 64


@dataclass(frozen=True)
class Layout:
    """What stands behind `embed_bulk`, and how large a request to it is."""

    tokenizers: int
    request_tokens: int
    encoders: int = 1
    rows: int = 64
    """What the encoder takes at once."""


LAYOUTS = (
    Layout(1, 2048),
    Layout(1, 16_384),
    Layout(4, 16_384),
    Layout(12, 2048),
    Layout(12, 16_384),
    Layout(12, 16_384, encoders=2),
    Layout(12, 65_536, rows=256),
)


@dataclass(frozen=True)
class Measured:
    """One layout at one length of text."""

    gpus: int
    layout: Layout
    tokens: float
    texts_per_s: float
    idle_p95_ms: float
    beside_p95_ms: float
    failed: int

    def row(self) -> str:
        """A line of the table."""
        layout = self.layout
        return (
            f"| {self.gpus} | {self.tokens:.0f} | {layout.tokenizers} | {layout.encoders} of {layout.rows} "
            f"| {layout.request_tokens:,} | {self.texts_per_s:,.0f} | {self.tokens * self.texts_per_s:,.0f} "
            f"| {self.idle_p95_ms:.1f} | {self.beside_p95_ms:.1f} | x {self.beside_p95_ms / self.idle_p95_ms:.2f} "
            f"| {self.failed} |"
        )


TITLES = (
    "\n| GPUs | tokens a text | tokenizers | encoders | tokens a request | texts/s | tokens/s "
    "| idle p95, ms | beside, ms | of idle | failed |\n|---|---|---|---|---|---|---|---|---|---|---|"
)


def texts_of_tokens(passages: Sequence[str], tokens: int, count: int) -> list[str]:
    """Real words in their order, cut so that a text fills `tokens` as nearly as whole words allow."""
    number_of = quick_count(Tokenizer.from_file(str(TOKENIZER)))
    texts, held, size = list[str](), list[str](), 2
    for word in (word for passage in passages for word in passage.split()):
        length = number_of(word)
        if size + length > tokens:
            texts.append(" ".join(held))
            if len(texts) == count:
                return texts
            held, size = [], 2
        if length <= tokens - 2:
            held.append(word)
            size += length
    raise SystemExit(f"the passages hold {len(texts)} texts of {tokens} tokens, not {count}")


def lay_out(repository: Path, kind: str, layout: Layout) -> None:
    """`embed` and `embed_bulk` as committed, but for the instances, the device and what an encoder takes at once."""
    for name in (
        "embed",
        "embed_tokenizer",
        "embed_encoder",
        "embed_bulk",
        "embed_bulk_tokenizer",
        "embed_bulk_encoder",
    ):
        shutil.copytree(ZOO / name, repository / name, copy_function=os.symlink)
        file = repository / name / "config.pbtxt"
        text = file.read_text()
        file.unlink()
        if name.endswith("encoder"):
            text = _on_device(text, kind)
            if "bulk" in name:
                text = text.replace("count: 1 ", f"count: {layout.encoders} ")
        if name == "embed_bulk_tokenizer":
            text = text.replace("count: 1 ", f"count: {layout.tokenizers} ")
        if "bulk" in name:
            text = text.replace("max_batch_size: 64", f"max_batch_size: {layout.rows}")
        file.write_text(text)


def _on_device(config: str, kind: str) -> str:
    """On a GPU a run holds the device, not cores: without the parameters that share those."""
    if kind == "cpu":
        return config
    shared = re.compile(r'^parameters \{ key: "(?:intra_op_thread_count|niceness|run_elements|side_by_side)".*\n', re.M)
    return shared.sub("", config).replace("KIND_CPU", "KIND_GPU")


@contextmanager
def zoo(kind: str, layout: Layout, device: int) -> Iterator[str]:
    """host:port of a Triton of this layout that sees one GPU."""
    with tempfile.TemporaryDirectory(prefix="zooserve-bulk-") as scratch:
        repository = Path(scratch, "models")
        repository.mkdir()
        lay_out(repository, kind, layout)
        found = find_installation(Path(scratch), ROOT / "platform/triton-backends")
        installation = replace(found, environment={**found.environment, "CUDA_VISIBLE_DEVICES": str(device)})
        at = Addresses("127.0.0.1", *reserved_ports(3))
        prefix = f"zooserve-bulk-{os.getpid()}-{device}-"
        server = TritonServer("bulk", installation, repository, at, Path(scratch, "log"), shm_prefix=prefix)
        server.start()
        try:
            server.wait_until_loaded(240)
            yield at.http
        except Exception:
            print(server.log_tail(), flush=True)
            raise
        finally:
            server.stop(10)


def send_bulk(http: str, texts: Sequence[str], rows: int, clients: int, seconds: float) -> tuple[float, int]:
    """Texts per second through `embed_bulk`, and requests that failed; runs in a process of its own."""
    lists = [texts[start : start + rows] for start in range(0, len(texts) - rows + 1, rows)]
    random.Random(os.getpid()).shuffle(lists)
    calls = [direct_embed(http, *some, model="embed_bulk") for some in lists]
    measured = asyncio.run(run_load(calls, clients, seconds))
    return measured.per_second * rows, measured.failed


def send_interactive(http: str, texts: Sequence[str], seconds: float) -> tuple[list[float], int]:
    """Latencies of single texts that come at a steady pace, and how many failed; runs in a process of its own."""
    measured = asyncio.run(steady([direct_embed(http, text) for text in texts], INTERACTIVE_EVERY_S, seconds))
    return measured.latencies_s, measured.failed


@dataclass(frozen=True)
class Bench:
    """What every measurement shares."""

    pool: ProcessPoolExecutor
    texts: dict[int, list[str]]
    short: list[str]
    seconds: float
    kind: str

    def layout(self, layout: Layout, devices: Sequence[int], lengths: Sequence[int]) -> Iterator[Measured]:
        """The layout on each of these GPUs at once, for each length of text."""
        with ExitStack() as open_servers:
            servers = [open_servers.enter_context(zoo(self.kind, layout, device)) for device in devices]
            for http in servers:  # the GPU's kernels and memory for every shape, before anything is measured
                for length in lengths:
                    send_bulk(http, self.texts[length][:1024], self.rows(layout, length), 8, 2)
                send_interactive(http, self.short, 1)
            idle, _ = self.pool.submit(send_interactive, servers[0], self.short, self.seconds).result()
            for length in lengths:
                yield self._beside(layout, servers, length, percentile(idle, 0.95))

    @staticmethod
    def rows(layout: Layout, length: int) -> int:
        """Texts of a request: what its tokens allow, and at most what the model takes."""
        return min(layout.rows, max(1, layout.request_tokens // length))

    def _beside(self, layout: Layout, servers: Sequence[str], length: int, idle_s: float) -> Measured:
        texts, rows = self.texts[length], self.rows(layout, length)
        clients = max(1, TOKENS_IN_FLIGHT // (rows * length) // PROCESSES)
        load = [
            self.pool.submit(send_bulk, http, texts, rows, clients, self.seconds + 2)
            for http in servers
            for _ in range(PROCESSES)
        ]
        time.sleep(1)
        beside, failed = self.pool.submit(send_interactive, servers[0], self.short, self.seconds).result()
        done = [part.result() for part in load]
        return Measured(
            len(servers),
            layout,
            float(np.mean(token_lengths(texts))),
            sum(rate for rate, _ in done),
            idle_s * 1000,
            percentile(beside, 0.95) * 1000,
            failed + sum(lost for _, lost in done),
        )


def raw(texts: dict[int, list[str]], seconds: float, kind: str) -> dict[int, dict[str, float]]:
    """By length: texts/s of one tokenizer on one core, and of the encoder alone in batches of 64; runs by itself."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import onnxruntime

    providers = ["CUDAExecutionProvider"] if kind == "gpu" else ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(str(ZOO / "embed_encoder/1/model.onnx"), providers=providers)
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    tokenizer.enable_truncation(256)
    found = {}
    for length, given in texts.items():
        tokenizer.enable_padding(length=length)
        batches, began = [], time.perf_counter()
        for start in range(0, 1024, RAW_BATCH):
            rows = tokenizer.encode_batch_fast(given[start : start + RAW_BATCH])
            ids, mask = (np.array([getattr(row, name) for row in rows], np.int64) for name in ("ids", "attention_mask"))
            batches.append({"input_ids": ids, "attention_mask": mask})
        tokenized = 1024 / (time.perf_counter() - began)
        for batch in batches:
            session.run(["sentence_embedding"], batch)
        done, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            session.run(["sentence_embedding"], batches[done % len(batches)])
            done += 1
        found[length] = {"tokenizer": tokenized, "encoder": done * RAW_BATCH / (time.perf_counter() - began)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=Path, required=True)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--layouts", type=int, nargs="+", default=list(range(len(LAYOUTS))), help="which, by number")
    parser.add_argument("--scaled", type=int, default=4, help="the layout that is run on all GPUs at once")
    parser.add_argument("--texts", type=int, default=TEXTS)
    parser.add_argument("--kind", choices=["gpu", "cpu"], default="gpu")
    parser.add_argument("--record", type=Path, help="also write the figures here, as JSON")
    given = parser.parse_args()
    passages = [json.loads(line)["text"] for line in given.passages.read_text(encoding="utf-8").splitlines()]
    texts = {length: texts_of_tokens(passages, length, given.texts) for length in LENGTHS}
    short = texts_of_tokens(passages, INTERACTIVE_TOKENS, 512)
    found: list[Measured] = []
    # Spawned: a fork would take the parent's event loop along, and a CUDA context does not survive one.
    with ProcessPoolExecutor(PROCESSES * given.gpus + 1, mp_context=get_context("spawn")) as pool:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
            by_itself = alone.submit(raw, texts, given.seconds / 2, given.kind).result()
        print(f"{os.cpu_count()} cores. Raw ONNX Runtime, texts/s:", json.dumps(by_itself), flush=True)
        print(TITLES, flush=True)
        bench = Bench(pool, texts, short, given.seconds, given.kind)
        runs = [(LAYOUTS[number], [0]) for number in given.layouts]
        if given.gpus > 1:
            runs.insert(min(1, len(runs)), (LAYOUTS[given.scaled], list(range(given.gpus))))
        for layout, devices in runs:
            for measured in bench.layout(layout, devices, LENGTHS):
                found.append(measured)
                print(measured.row(), flush=True)
            if given.record:
                record = {"raw": by_itself, "measured": [asdict(one) for one in found]}
                given.record.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
