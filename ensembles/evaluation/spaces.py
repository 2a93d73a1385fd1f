"""Retrieval with each embedding model of the zoo, on texts that it was not trained on by us, and drift of the int8 one.

    PYTHONPATH=ensembles python -m evaluation.retrieval_data FOLDER
    PYTHONPATH=ensembles python -m evaluation.spaces FOLDER [--sets faq ...] [--models embed ...] [--drift] [--words]

Runs the placed graphs in ONNX Runtime, without a server. 300 questions of each set, chosen by a hash, search 800
passages: the answers and others, chosen in the same way. MRR@10 with a 95% bootstrap interval, and the mean difference
from `embed` on the same questions.
"""

import argparse
import hashlib
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from evaluation.measures import interval, reciprocal_ranks
from evaluation.retrieval_data import RetrievalSet, read_set

REPOSITORY = Path(__file__).parents[2] / "model_repository" / "zoo"
SETS = ("faq", "debian", "debian_de", "debian_fr")
QUESTIONS, PASSAGES = 300, 800
ROWS = 8
WORDS = 30_522
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Reader:
    """How a model reads texts: its longest, its padding, and what stands before a question and a passage."""

    tokens: int = 256
    pad_id: int = 0
    question: str = ""
    passage: str = ""


READERS: Mapping[str, Reader] = {
    "embed": Reader(),
    "embed_int8": Reader(),
    "embed_multilingual": Reader(512, 1, "query: ", "passage: "),
    "embed_sparse": Reader(),
}


class Encoder:
    """A model of the zoo, without the zoo. Sparse answers come as dense rows."""

    def __init__(self, name: str, graph: Path | None = None) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        self._reader = READERS[name]
        self._tokenizer = Tokenizer.from_file(str(REPOSITORY / f"{name}_tokenizer/1/tokenizer.json"))
        self._tokenizer.enable_truncation(self._reader.tokens)
        self._tokenizer.no_padding()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 2
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(graph or REPOSITORY / f"{name}_encoder/1/model.onnx", options)
        self._outputs = ["indices", "values"] if name == "embed_sparse" else ["sentence_embedding"]

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text."""
        return [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]

    def rows(self, ids: Sequence[Sequence[int]]) -> Array:
        """Vectors of one batch."""
        lengths = np.array([len(row) for row in ids])
        mask = (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64)
        padded = np.full_like(mask, self._reader.pad_id)
        padded[mask > 0] = np.concatenate([np.array(row) for row in ids])
        found = self._session.run(self._outputs, {"input_ids": padded, "attention_mask": mask})
        return np.asarray(found[0]) if len(found) == 1 else _dense(*found)

    def encode(self, texts: Sequence[str], prompt: str) -> Array:
        """Vectors of many texts, batched by length."""
        ids = self.ids([prompt + text for text in texts])
        order = np.argsort([len(row) for row in ids], kind="stable")
        parts = [self.rows([ids[place] for place in order[at : at + ROWS]]) for at in range(0, len(ids), ROWS)]
        vectors = np.concatenate(parts)
        return np.asarray(vectors[np.argsort(order)])


def _dense(indices: Array, values: Array) -> Array:
    rows = np.zeros((len(indices), WORDS + 1), np.float16)
    np.put_along_axis(rows, indices.astype(np.int64), values.astype(np.float16), axis=1)  # -1 is the last column
    return rows[:, :WORDS]


def sample(folder: Path, name: str) -> RetrievalSet:
    """The same questions and passages every time."""
    return read_set(folder, name).sampled({"test": QUESTIONS}, PASSAGES - QUESTIONS)


def ranks(vectors: "Vectors", model: str, found: RetrievalSet) -> Array:
    """1 / the rank of each question's answer."""
    reader = READERS[model]
    questions = vectors.of(model, [question.text for question in found.questions], reader.question)
    passages = vectors.of(model, found.passages, reader.passage)
    answers = np.array([question.passage for question in found.questions])
    relevant = np.arange(len(found.passages)) == answers[:, None]
    return reciprocal_ranks(questions.astype(np.float32) @ passages.astype(np.float32).T, relevant)


class Vectors:
    """Vectors in a folder, each text encoded once: the sets share passages."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)

    def of(self, model: str, texts: Sequence[str], prompt: str) -> Array:
        """A row for each text."""
        graph = (REPOSITORY / f"{model}_encoder/1/model.onnx").stat()
        file = self._folder / f"{model}-{graph.st_size}.npz"
        kept = dict(np.load(file)) if file.is_file() else {}
        names = [_hash(prompt + text).hex() for text in texts]
        missing = {name: text for name, text in zip(names, texts, strict=True) if name not in kept}
        if missing:
            rows = Encoder(model).encode(list(missing.values()), prompt)
            kept |= dict(zip(missing, rows, strict=True))
            np.savez_compressed(file, **kept)
        return np.stack([kept[name] for name in names])


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def retrieval(folder: Path, sets: Sequence[str], models: Sequence[str]) -> Iterator[str]:
    """A line for each set and model."""
    vectors = Vectors(folder / "vectors")
    for name in sets:
        found = sample(folder, name)
        base = ranks(vectors, "embed", found)
        for model in models:
            mine = ranks(vectors, model, found)
            low, high = interval(mine)
            line = f"{name:10} {model:20} MRR@10 {mine.mean():.3f} [{low:.3f}, {high:.3f}]"
            if model != "embed":
                low, high = interval(mine - base)
                line += f"  from embed {(mine - base).mean():+.3f} [{low:+.3f}, {high:+.3f}]"
            yield line


def drift(folder: Path) -> Iterator[str]:
    """How far int8 vectors are from those in floats, and from themselves among 31 others; and their cost."""
    found = sample(folder, "faq")
    answers = sorted({question.passage for question in found.questions})[:256]
    texts = [found.passages[place] for place in answers] + [question.text for question in found.questions[:256]]
    floats = Encoder("embed")
    ids = floats.ids(texts)
    dynamic = folder / "dynamic_int8.onnx"
    _quantised_by_the_tool(REPOSITORY / "embed_encoder/1/model.onnx", dynamic)
    wanted, spent = _by_batches(floats, ids, 1)
    yield f"embed: {len(texts)} texts, {sum(map(len, ids))} tokens; alone {spent:.0f} s of CPU"
    for name, graph in (("embed_int8", None), ("ONNX Runtime's dynamic int8, per channel", dynamic)):
        encoder = Encoder("embed_int8", graph)
        (alone, spent), (together, _) = _by_batches(encoder, ids, 1), _by_batches(encoder, ids, 32)
        near, same = (alone * wanted).sum(axis=1), (alone * together).sum(axis=1)
        yield (
            f"{name}: cosine to fp32 mean {near.mean():.4f}, min {near.min():.4f}; alone against among 31 others: min "
            f"{same.min():.6f}, largest difference {np.abs(alone - together).max():.1e}; alone {spent:.0f} s of CPU"
        )


def _by_batches(encoder: Encoder, ids: Sequence[Sequence[int]], rows: int) -> tuple[Array, float]:
    """Vectors, and the processor's seconds that they took."""
    began = time.process_time()
    vectors = np.concatenate([encoder.rows(ids[at : at + rows]) for at in range(0, len(ids), rows)])
    return vectors, time.process_time() - began


def words_with_a_weight(folder: Path) -> Iterator[str]:
    """How sparse the sparse vectors of passages are."""
    for name in ("faq", "debian"):
        rows = Vectors(folder / "vectors").of("embed_sparse", sample(folder, name).passages, "")
        entries = (rows > 0).sum(axis=1)
        full = (entries == entries.max()).mean()
        yield f"{name}: median {np.median(entries):.0f} words with a weight, most {entries.max()} ({full:.0%} of texts)"


def _quantised_by_the_tool(source: Path, target: Path) -> None:
    from onnx import TensorProto
    from onnxruntime.quantization import QuantType, quantize_dynamic

    options = {"DefaultTensorType": TensorProto.FLOAT}
    quantize_dynamic(source, target, per_channel=True, weight_type=QuantType.QInt8, extra_options=options)


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description="Measure the zoo's embedding models.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", nargs="+", choices=sorted(READERS), default=list(READERS))
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--drift", action="store_true", help="of int8 from fp32, and of both from their batch-mates")
    parser.add_argument("--words", action="store_true", help="how many a sparse vector has")
    arguments = parser.parse_args()
    if arguments.drift:
        lines = drift(arguments.folder)
    elif arguments.words:
        lines = words_with_a_weight(arguments.folder)
    else:
        lines = retrieval(arguments.folder, arguments.sets, arguments.models)
    for line in lines:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
