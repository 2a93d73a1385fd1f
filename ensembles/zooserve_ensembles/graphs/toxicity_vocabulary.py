"""The toxicity classifier's word list, read out of its pickle without running what a pickle may run."""

import io
import json
import pickle
from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["build"]


class _Tokenizer:
    """Stands in for Keras' class, whose attributes are all that is wanted."""


class _PlainUnpickler(pickle.Unpickler):
    """Loads containers and the one known class; anything else in the stream is refused."""

    def find_class(self, module: str, name: str) -> Any:
        known = {
            ("collections", "OrderedDict"): OrderedDict,
            ("collections", "defaultdict"): defaultdict,
            ("builtins", "int"): int,
        }
        if name == "Tokenizer":
            return _Tokenizer
        if (module, name) in known:
            return known[module, name]
        raise pickle.UnpicklingError(f"{module}.{name} has no place in a word list")


def build(inputs: Mapping[str, Path]) -> bytes:
    """`tokenizer.pickle` as JSON: the characters that split words, and the ids of the words the model knows."""
    tokenizer = _PlainUnpickler(io.BytesIO(inputs["tokenizer.pickle"].read_bytes())).load()
    known = {word: index for word, index in tokenizer.word_index.items() if index < tokenizer.num_words}
    vocabulary = {
        "filters": tokenizer.filters,
        "lower": tokenizer.lower,
        "num_words": tokenizer.num_words,
        "words": dict(sorted(known.items(), key=lambda entry: entry[1])),
    }
    return json.dumps(vocabulary, ensure_ascii=False, indent=0).encode()
