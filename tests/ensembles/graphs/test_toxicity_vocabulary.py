import json
import os
import pickle
from collections import OrderedDict
from pathlib import Path

import pytest

from zooserve_ensembles.graphs.toxicity_vocabulary import build


class Tokenizer:
    """Pickles under the name that Keras' class has."""


def pickled(folder: Path, content: object) -> dict[str, Path]:
    file = folder / "tokenizer.pickle"
    file.write_bytes(pickle.dumps(content))
    return {"tokenizer.pickle": file}


def word_list() -> Tokenizer:
    tokenizer = Tokenizer()
    tokenizer.__dict__ = {
        "filters": "!?\t",
        "lower": True,
        "num_words": 4,
        "word_index": OrderedDict(naïve=3, the=1, rare=4, of=2),
    }
    return tokenizer


def test_the_words_the_model_knows_are_kept_in_the_order_of_their_ids(tmp_path: Path) -> None:
    vocabulary = json.loads(build(pickled(tmp_path, word_list())))
    assert list(vocabulary["words"].items()) == [("the", 1), ("of", 2), ("naïve", 3)]
    assert (vocabulary["filters"], vocabulary["lower"], vocabulary["num_words"]) == ("!?\t", True, 4)


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("true",)


def test_a_pickle_that_would_run_something_is_refused(tmp_path: Path) -> None:
    with pytest.raises(pickle.UnpicklingError, match="system has no place in a word list"):
        build(pickled(tmp_path, Evil()))
