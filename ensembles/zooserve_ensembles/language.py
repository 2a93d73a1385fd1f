"""What a naive Bayes language model reads: the byte sequences that an automaton finds in a text, and how often."""

import unicodedata
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

__all__ = ["FEATURE_BUCKETS", "MAX_BYTES", "Automaton", "Features", "features_of"]

MAX_BYTES = 1024
"""Of a text that are read: more hardly helps (docs/models/language.md), and each costs a step of the automaton."""

FEATURE_BUCKETS = (64, 256, MAX_BYTES)
"""Lengths that rows are padded to; a text has at most as many features as bytes."""

_SOME_CHARACTERS = MAX_BYTES
"""No text of MAX_BYTES bytes has more characters: so much is normalised, and no more."""


class Automaton:
    """Reads a text byte by byte; some of its states stand for a feature. Immutable."""

    def __init__(
        self, states: npt.NDArray[np.uint32], row: npt.NDArray[np.uint32], feature: npt.NDArray[np.int32]
    ) -> None:
        # Plain integers: a numpy scalar per byte would cost ten times as much.
        self._next = array("I", states.astype(np.uint32).tobytes())
        self._offset = (row.astype(np.int64) * 256).tolist()
        self._feature = feature.tolist()

    @classmethod
    def from_file(cls, path: Path) -> "Automaton":
        """The automaton of an automaton.npz. Raises OSError or ValueError."""
        with np.load(path, allow_pickle=False) as arrays:
            return cls(arrays["states"], arrays["row"], arrays["feature"])

    def visits(self, text: bytes) -> Counter[int]:
        """How often each feature occurs."""
        found, state = [], 0
        following, offset, feature = self._next, self._offset, self._feature
        for byte in text:
            state = following[offset[state] + byte]
            if feature[state] >= 0:
                found.append(feature[state])
        return Counter(found)


@dataclass(frozen=True)
class Features:
    """What the model reads of some texts, a row each."""

    features: npt.NDArray[np.int64]
    counts: npt.NDArray[np.float32]
    """How often each occurs; 0 is padding."""
    sharpness: npt.NDArray[np.float32]
    """How much a text of its length proves; 0 without any feature: every language is then as likely as another."""
    sizes: npt.NDArray[np.int32]
    """Bytes that were read."""


def features_of(automaton: Automaton, texts: Sequence[str]) -> Features:
    """The features of the texts, padded to the bucket of the richest."""
    raw = [_readable(text) for text in texts]
    visits = [automaton.visits(text) for text in raw]
    longest = max(map(len, visits), default=0)
    length = next(bucket for bucket in FEATURE_BUCKETS if bucket >= longest)
    features = np.zeros((len(texts), length), np.int64)
    counts = np.zeros((len(texts), length), np.float32)
    sizes = np.array([[len(text)] for text in raw], np.int32).reshape(-1, 1)
    for row, found in enumerate(visits):
        features[row, : len(found)] = list(found.keys())
        counts[row, : len(found)] = list(found.values())
    something = counts.any(axis=1, keepdims=True)
    sharpness = np.where(something, 1 / np.sqrt(np.maximum(sizes, 1)), 0).astype(np.float32)
    return Features(features, counts, sharpness, sizes)


def _readable(text: str) -> bytes:
    """The text as the model was trained: composed characters, and small ones where all are capitals."""
    text = text[:_SOME_CHARACTERS]
    if text.isupper():
        text = text.lower()
    raw = unicodedata.normalize("NFC", text).encode()[:MAX_BYTES]
    return raw.decode(errors="ignore").encode()  # without half a character at the end
