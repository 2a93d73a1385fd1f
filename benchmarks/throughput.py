"""Embedding throughput at 64 single-text clients: router, ensemble called directly, raw ONNX Runtime, interleaved.

Raw ONNX Runtime runs in this process on the same file, texts and cores while the servers idle: it tokenizes, pads to
the bucket and runs batches of 32. Mean batch sizes come from Triton's statistics, before and after each round.

    python benchmarks/throughput.py --router http://127.0.0.1:8000 --zoo 127.0.0.1:8001
"""

import argparse
import asyncio
import json
import time
import urllib.request
from pathlib import Path

import numpy as np
from load import Call, direct_embed, embeddings_call, run_load, texts_of_words

BUCKETS = (16, 32, 64, 128, 256)
ENCODER = Path(__file__).parents[1] / "model_repository/zoo/embed_encoder/1/model.onnx"
TOKENIZER = Path(__file__).parents[1] / "model_repository/zoo/embed_tokenizer/1/tokenizer.json"

MIXES = {
    "one bucket (20 words)": [20],
    "mixed lengths (8, 20, 40, 80 words)": [8, 20, 40, 80],
}


class RawEncoder:
    """ONNX Runtime with its default threads, nothing between it and the texts."""

    def __init__(self) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        self._session = onnxruntime.InferenceSession(str(ENCODER), providers=["CPUExecutionProvider"])
        self._tokenizer = Tokenizer.from_file(str(TOKENIZER))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(256)

    def texts_per_second(self, texts: list[str], seconds: float, batch: int = 32) -> float:
        """Sorted by length, in batches, round and round for `seconds`."""
        ordered = sorted(texts, key=len)
        done, started = 0, time.perf_counter()
        while time.perf_counter() - started < seconds:
            first = done % len(ordered)
            done += self._embed(ordered[first : first + batch])
        return done / (time.perf_counter() - started)

    def _embed(self, texts: list[str]) -> int:
        encoded = self._tokenizer.encode_batch(texts)
        longest = max(len(row.ids) for row in encoded)
        length = next(bucket for bucket in BUCKETS if bucket >= longest)
        ids = np.zeros((len(texts), length), np.int64)
        mask = np.zeros((len(texts), length), np.int64)
        for row, one in enumerate(encoded):
            ids[row, : len(one.ids)] = one.ids
            mask[row, : len(one.ids)] = 1
        self._session.run(["sentence_embedding"], {"input_ids": ids, "attention_mask": mask})
        return len(texts)


def encoder_counts(zoo: str) -> tuple[int, int]:
    """(inferences, executions) of the interactive encoder since it was loaded."""
    with urllib.request.urlopen(f"http://{zoo}/v2/models/embed_encoder/stats", timeout=10) as answer:
        stats = json.load(answer)["model_stats"][0]
    return int(stats["inference_count"]), int(stats["execution_count"])


def loaded(calls: list[Call], zoo: str, concurrency: int, seconds: float) -> tuple[float, float, int]:
    """(requests per second, mean batch in the encoder, failures) of one round."""
    before = encoder_counts(zoo)
    measured = asyncio.run(run_load(calls, concurrency, seconds))
    after = encoder_counts(zoo)
    mean_batch = (after[0] - before[0]) / max(1, after[1] - before[1])
    return measured.per_second, mean_batch, measured.failed


def measure(router: str, zoo: str, concurrency: int, seconds: float, rounds: int) -> list[dict[str, float | str]]:
    """One row per mix of lengths, every path in every round."""
    raw = RawEncoder()
    rows: list[dict[str, float | str]] = []
    for mix, lengths in MIXES.items():
        texts = [text for words in lengths for text in texts_of_words(words, 256 // len(lengths))]
        np.random.default_rng(3).shuffle(texts)
        through = [embeddings_call(router, text) for text in texts]
        direct = [direct_embed(zoo, text) for text in texts]
        found = np.zeros((rounds, 5))
        failures = 0
        for index in range(rounds):
            found[index, 0] = raw.texts_per_second(texts, seconds)
            for column, calls in ((1, direct), (3, through)):
                per_second, mean_batch, failed = loaded(calls, zoo, concurrency, seconds)
                found[index, column : column + 2] = per_second, mean_batch
                failures += failed
        raw_rate, direct_rate, direct_batch, router_rate, router_batch = found.mean(axis=0)
        rows.append(
            {
                "mix": mix,
                "raw_per_s": raw_rate,
                "direct_per_s": direct_rate,
                "direct_mean_batch": direct_batch,
                "router_per_s": router_rate,
                "router_mean_batch": router_batch,
                "direct_over_raw": direct_rate / raw_rate,
                "router_over_raw": router_rate / raw_rate,
                "failed": float(failures),
            }
        )
    return rows


def table(rows: list[dict[str, float | str]], concurrency: int) -> str:
    """The figures as a Markdown table."""
    lines = [
        f"{concurrency} single-text clients; texts/s and, in brackets, the ratio to raw ONNX Runtime in the same run",
        "",
        "| texts | raw | ensemble directly | mean batch | through the router | mean batch | failed |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['mix']} | {row['raw_per_s']:.0f} | {row['direct_per_s']:.0f} ({row['direct_over_raw']:.2f}) "
        f"| {row['direct_mean_batch']:.1f} | {row['router_per_s']:.0f} ({row['router_over_raw']:.2f}) "
        f"| {row['router_mean_batch']:.1f} | {row['failed']:.0f} |"
        for row in rows
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--router", required=True)
    parser.add_argument("--zoo", required=True, help="host:port of Triton's HTTP endpoint")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = measure(given.router, given.zoo, given.concurrency, given.seconds, given.rounds)
    print(json.dumps(rows) if given.json else table(rows, given.concurrency))


if __name__ == "__main__":
    main()
