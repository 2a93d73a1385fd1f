"""What a running platform answers, kept in a file by model, version and text: nothing is asked for twice.

Vectors and scores come through the public HTTP API by the SDK.
"""

import hashlib
import json
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from zooserve import Zoo
from zooserve.errors import ModelNotFound
from zooserve.sdk.bodies import InputType, SloClass

__all__ = ["Asked", "Kept", "Sparse", "sparse_products"]

Floats = npt.NDArray[np.float32]
Sparse = Sequence[tuple[npt.NDArray[np.int32], Floats]]
"""Words and their weights, of each text."""

TEXTS_AT_ONCE = 32
QUESTIONS_AT_ONCE = 4
TIMEOUT_S = 300.0
"""Of one call; a shared machine may take long."""


class Kept:
    """Bytes by a key, in a file that survives being interrupted."""

    def __init__(self, file: Path) -> None:
        self._lock = threading.Lock()
        self._database = sqlite3.connect(file, check_same_thread=False)
        self._database.execute("CREATE TABLE IF NOT EXISTS kept (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")

    def get(self, key: bytes) -> bytes | None:
        """What was kept, or None."""
        with self._lock:
            row = self._database.execute("SELECT value FROM kept WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def put(self, values: Mapping[bytes, bytes]) -> None:
        """Keep them all, or none if interrupted."""
        with self._lock, self._database:
            self._database.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?)", values.items())

    def close(self) -> None:
        """Close the file."""
        self._database.close()


class Asked:
    """Answers of one platform's models. `models` says which version and embedding space each was."""

    def __init__(self, zoo: Zoo, kept: Kept, slo_class: SloClass = "bulk") -> None:
        self._zoo = zoo
        self._kept = kept
        self._slo_class: SloClass = slo_class
        self.models: dict[str, dict[str, str]] = {}

    def dense(self, model: str, texts: Sequence[str], input_type: InputType) -> Floats:
        """A vector of each text, [texts, dimensions]."""

        def ask(some: list[str]) -> list[bytes]:
            space = self.models[model]["space"]
            made = self._zoo.embed(
                some, model=model, input_type=input_type, slo_class=self._slo_class, space=space, timeout_s=TIMEOUT_S
            )
            return [vector.tobytes() for vector in made.numpy()]

        return np.stack([np.frombuffer(value, np.float32) for value in self._of_texts(model, input_type, texts, ask)])

    def sparse(self, model: str, texts: Sequence[str]) -> Sparse:
        """Words and weights of each text."""

        def ask(some: list[str]) -> list[bytes]:
            made = self._zoo.embed_sparse(some, model=model, slo_class=self._slo_class, timeout_s=TIMEOUT_S)
            return [json.dumps([list(vector.indices), list(vector.values)]).encode() for vector in made]

        rows = [json.loads(value) for value in self._of_texts(model, "sparse", texts, ask)]
        return [(np.array(words, np.int32), np.array(weights, np.float32)) for words, weights in rows]

    def relevances(self, model: str, queries: Sequence[str], documents: Sequence[Sequence[str]]) -> list[list[float]]:
        """A reranker's score of each query's documents."""
        release = self._release(model)

        def scores(query: str, listed: Sequence[str]) -> list[float]:
            known = self.known(model, query, listed)
            if missing := [document for document in listed if document not in known]:
                ranked = self._zoo.rerank(query, missing, model=model, slo_class=self._slo_class, timeout_s=TIMEOUT_S)
                found = {one.document: one.score for one in ranked}
                keyed = {_key(model, release, "pair", query, one): score for one, score in found.items()}
                self._kept.put({key: np.float64(score).tobytes() for key, score in keyed.items()})
                known |= found
            return [known[document] for document in listed]

        with ThreadPoolExecutor(QUESTIONS_AT_ONCE) as pool:
            return list(_counted(pool.map(scores, queries, documents), len(queries), model))

    def known(self, model: str, query: str, documents: Sequence[str]) -> dict[str, float]:
        """Those of a query's documents that this reranker was asked about before, and what it said."""
        try:
            release = self._release(model)
        except ModelNotFound:  # not enabled: nothing is known of what this platform would say
            return {}
        kept = {document: self._kept.get(_key(model, release, "pair", query, document)) for document in documents}
        return {document: float(np.frombuffer(value, np.float64)[0]) for document, value in kept.items() if value}

    def _of_texts(
        self, model: str, kind: str, texts: Sequence[str], ask: Callable[[list[str]], list[bytes]]
    ) -> list[bytes]:
        release = self._release(model)
        keys = {text: _key(model, release, kind, text) for text in texts}
        missing = [text for text, key in keys.items() if self._kept.get(key) is None]
        parts = [missing[at : at + TEXTS_AT_ONCE] for at in range(0, len(missing), TEXTS_AT_ONCE)]
        for part in _counted(iter(parts), len(parts), f"{model} {kind}"):
            self._kept.put({keys[text]: value for text, value in zip(part, ask(part), strict=True)})
        return [self._kept.get(keys[text]) or b"" for text in texts]

    def _release(self, model: str) -> str:
        """The model's version and embedding space; noted at the first call."""
        if model not in self.models:
            card = self._zoo.model(model)
            space = card.details.get("embedding_space")
            self.models[model] = {"version": card.version} | ({"space": str(space)} if space else {})
        return " ".join(self.models[model].values())


def sparse_products(queries: Sparse, documents: Sparse, words: int = 30_522) -> Floats:
    """Dot products, [queries, documents]."""
    rows = np.zeros((len(queries), words), np.float32)
    for row, (indices, values) in zip(rows, queries, strict=True):
        row[indices] = values
    return np.stack([rows[:, indices] @ values for indices, values in documents], axis=1)


def _key(*parts: str) -> bytes:
    return hashlib.sha256(json.dumps(parts).encode()).digest()


def _counted(items: Iterator[Any], total: int, what: str) -> Iterator[Any]:
    for number, item in enumerate(items, 1):
        yield item
        if number % 20 == 0 or number == total:
            sys.stderr.write(f"{what}: {number} of {total}\n")
