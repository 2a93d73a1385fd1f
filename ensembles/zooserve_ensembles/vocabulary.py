"""A word list as the toxicity model was trained with: filter characters, split at spaces, look up, keep the end."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

__all__ = ["Vocabulary", "load_vocabulary"]


@dataclass(frozen=True)
class Vocabulary:
    """Words with their ids; an id of `num_words` or more is unknown to the model."""

    filters: str
    lower: bool
    num_words: int
    words: Mapping[str, int]

    def ids(self, text: str) -> list[int]:
        """Ids of the known words, in order; unknown words are left out."""
        text = text.lower() if self.lower else text
        words = text.translate(dict.fromkeys(map(ord, self.filters), " ")).split(" ")
        found = (self.words.get(word, self.num_words) for word in words)
        return [number for number in found if number < self.num_words]

    def encode(self, texts: Sequence[str], length: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """The last `length` known words of each text, padded with 0 on the left, and how many of them there are."""
        rows = [self.ids(text)[-length:] for text in texts]
        ids = np.zeros((len(rows), length), np.int64)
        for target, row in zip(ids, rows, strict=True):
            target[length - len(row) :] = row
        return ids, np.fromiter(map(len, rows), np.int32, len(rows))[:, None]


def load_vocabulary(file: Path) -> Vocabulary:
    """Read the JSON file that `zooserve fetch` writes."""
    return Vocabulary(**json.loads(file.read_text(encoding="utf-8")))
