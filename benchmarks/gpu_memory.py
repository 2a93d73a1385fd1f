"""On an NVIDIA GPU: the memory that ONNX Runtime sessions of the zoo's encoders take, and what a limit does to them.

    python benchmarks/gpu_memory.py --strip FOLDER             # here: the zoo's graphs without their weights, to travel
    python benchmarks/gpu_memory.py --models FOLDER [--record FILE]   # on the GPU: random weights, the same shapes

Each reading is a process of its own, alone on the card: the context; a session opened, warmed at one row of each
bucket, run at 64 rows of each, run at 30 mixed shapes; then texts/s. By arena strategy, and with the arena given back
after each run. Then sessions under `gpu_mem_limit`: the first shape that is refused, and whether a small one is served
after it.

Needs onnxruntime-gpu, nvidia-ml-py, and torch for its CUDA libraries.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

ZOO = Path(__file__).parents[1] / "model_repository/zoo"
MIB = 1 << 20
ROWS = 64
BUCKETS = (16, 32, 64, 128, 256, 512)
LIMITS = {
    "embed_encoder": (1024, 256),
    "embed_sparse_encoder": (8192, 256),
    "rerank_cross_encoder": (384, 256),
    "embed_multilingual_encoder": (3072, 512),
}
"""The limit in MiB that the variants have, and the longest bucket."""
STRATEGIES = ("kSameAsRequested", "kNextPowerOfTwo")
LARGE = 4096
"""Elements from which on a weight is left behind."""
SHRINK = "memory.enable_memory_arena_shrinkage"


def stripped(folder: Path) -> None:
    """Each graph without its large weights."""
    import onnx

    folder.mkdir(parents=True, exist_ok=True)
    for name in LIMITS:
        model = onnx.load(str(ZOO / name / "1/model.onnx"))
        for weight in model.graph.initializer:
            if np.prod(weight.dims) > LARGE:
                for field in ("raw_data", "float_data", "int32_data"):
                    weight.ClearField(field)
        onnx.save(model, str(folder / f"{name}.onnx"))


def filled(source: Path, target: Path) -> None:
    """A stripped graph with random weights."""
    import onnx

    model, rng = onnx.load(str(source)), np.random.default_rng(0)
    for weight in model.graph.initializer:
        size = int(np.prod(weight.dims))
        if size <= LARGE:
            continue
        kind = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(weight.data_type))
        drawn = rng.standard_normal(size) * 0.02 if kind.kind == "f" else rng.integers(0, 255, size)
        weight.raw_data = drawn.astype(kind).tobytes()
    onnx.save(model, str(target))


def used_mib() -> float:
    """Of the card, by all processes."""
    pynvml = import_module("pynvml")
    pynvml.nvmlInit()
    used: int = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).used
    return used / MIB


class Encoder:
    """A session of one graph on the card."""

    def __init__(self, file: Path, strategy: str, limit_mib: int = 0, shrink: bool = False) -> None:
        import onnxruntime as ort

        ort.set_default_logger_severity(4)
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        cuda = {"device_id": "0", "arena_extend_strategy": strategy}
        if limit_mib:
            cuda["gpu_mem_limit"] = str(limit_mib * MIB)
        providers: list[Any] = [("CUDAExecutionProvider", cuda), "CPUExecutionProvider"]
        self.session = ort.InferenceSession(str(file), options, providers=providers)
        self.run_options = ort.RunOptions()
        if shrink:
            self.run_options.add_run_config_entry(SHRINK, "gpu:0")

    def run(self, rows: int, length: int) -> None:
        """One batch."""
        given = {each.name: np.ones((rows, length), np.int64) for each in self.session.get_inputs()}
        given["input_ids"] = np.random.default_rng(1).integers(5, 30_000, (rows, length))
        wanted = [output.name for output in self.session.get_outputs() if output.name != "token_embeddings"]
        self.session.run(wanted, given, self.run_options)


def buckets(name: str) -> list[int]:
    """Those that a model is served at."""
    return [bucket for bucket in BUCKETS if bucket <= LIMITS[name][1]]


def mixed(name: str, seed: int) -> Iterator[tuple[int, int]]:
    """Thirty shapes as traffic makes them."""
    rng = random.Random(seed)
    for _ in range(30):
        yield rng.choice((1, 3, 8, 17, 40, ROWS)), rng.choice(buckets(name))


def context() -> dict[str, Any]:
    """A process's CUDA context alone."""
    import torch

    before = used_mib()
    torch.cuda.init()
    torch.cuda.synchronize()
    return {"reading": "context", "context": round(used_mib() - before)}


def growth(file: Path, strategy: str, shrink: bool, sessions: int = 1) -> dict[str, Any]:
    """What one or more sessions in a process come to hold, and how fast the first is."""
    name, before, steps = file.stem, used_mib(), {}

    def note(step: str) -> None:
        steps[step] = round(used_mib() - before)

    encoders = [Encoder(file, strategy, shrink=shrink) for _ in range(sessions)]
    note("opened")
    for shapes in [[(1, bucket) for bucket in buckets(name)], *([(ROWS, bucket)] * 2 for bucket in buckets(name))]:
        for rows, length in shapes:
            for encoder in encoders:
                encoder.run(rows, length)
        note("warm" if shapes[0][0] == 1 else f"{ROWS}x{shapes[0][1]}")
    for rows, length in mixed(name, 1):
        for encoder in encoders:
            encoder.run(rows, length)
    note("mixed")
    speeds = {f"{ROWS}x{length}": texts_per_s(encoders[0], length) for length in (64, LIMITS[name][1])}
    told = {"model": name, "strategy": strategy, "given_back": shrink, "sessions": sessions}
    return {"reading": "growth", **told, "mib": steps, "texts_per_s": speeds}


def texts_per_s(encoder: Encoder, length: int, runs: int = 20) -> int:
    """In full batches, one after the other."""
    encoder.run(ROWS, length)
    begun = time.perf_counter()
    for _ in range(runs):
        encoder.run(ROWS, length)
    return round(runs * ROWS / (time.perf_counter() - begun))


def limited(file: Path, strategy: str, limit_mib: int) -> dict[str, Any]:
    """Whether a session serves every shape under a limit; if not, what it says, and whether it goes on."""
    told = {"reading": "limit", "model": file.stem, "strategy": strategy, "limit_mib": limit_mib}
    shapes = [(rows, bucket) for rows in (1, ROWS) for bucket in buckets(file.stem)]
    at = "opening"
    try:
        encoder = Encoder(file, strategy, limit_mib)
        for rows, length in (*shapes, *mixed(file.stem, 2)):
            at = f"{rows}x{length}"
            encoder.run(rows, length)
    except Exception as exc:  # ONNX Runtime's errors share no base
        told |= {"refused": at, "says": " ".join(str(exc).split())[-160:]}
    if told.get("refused", "opening") != "opening":
        encoder.run(1, BUCKETS[0])
        told["then"] = f"1x{BUCKETS[0]} served"
    return told


def child(*arguments: object) -> dict[str, Any]:
    """One reading in a process of its own."""
    command = [sys.executable, __file__, "--child", json.dumps([str(each) for each in arguments])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    failed = {"reading": "failed", "arguments": list(map(str, arguments)), "says": done.stderr[-300:]}
    reading: dict[str, Any] = json.loads(lines[-1]) if lines else failed
    return reading


def answer(kind: str, *arguments: str) -> None:
    """What a child prints."""
    import onnxruntime as ort
    import torch  # noqa: F401 - brings the CUDA libraries that the next line finds

    ort.preload_dlls()
    if kind == "context":
        reading = context()
    elif kind == "growth":
        file, strategy, kept, sessions = arguments
        reading = growth(Path(file), strategy, kept == "given back", int(sessions))
    else:
        file, strategy, limit = arguments
        reading = limited(Path(file), strategy, int(limit))
    print(json.dumps(reading))


def readings(files: list[Path]) -> Iterator[dict[str, Any]]:
    """Those of memory one by one, those of limits side by side."""
    yield child("context")
    for file in files:
        for strategy, kept in ((STRATEGIES[0], "kept"), (STRATEGIES[1], "kept"), (STRATEGIES[0], "given back")):
            yield child("growth", file, strategy, kept, 1)
    yield child("growth", files[0], STRATEGIES[0], "kept", 2)
    limits = [
        (file, strategy, round(LIMITS[file.stem][0] * part))
        for file in files
        for strategy in STRATEGIES
        for part in (1, 0.75, 0.5, 0.125)
    ]
    with ThreadPoolExecutor(8) as pool:
        yield from pool.map(lambda asked: child("limit", *asked), limits)


def measured(models: Path, record: Path | None) -> None:
    """Print every reading, and keep it."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{name}.onnx" for name in LIMITS]
        with ThreadPoolExecutor(len(files)) as pool:
            list(pool.map(filled, [models / file.name for file in files], files))
        found = []
        for reading in readings(files):
            print(json.dumps(reading), flush=True)
            found.append(reading)
            if record:
                record.write_text(json.dumps(found, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strip", type=Path)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        answer(*json.loads(options.child))
    elif options.strip:
        stripped(options.strip)
    elif options.models:
        measured(options.models, options.record)
    else:
        parser.error("say --strip FOLDER or --models FOLDER")


if __name__ == "__main__":
    main()
