"""Stage: texts to ids of whole words, for models with a word list of their own."""

from collections.abc import Mapping
from pathlib import Path

from zooserve_ensembles.stages.stage import Arrays, Stage
from zooserve_ensembles.texts import read_texts
from zooserve_ensembles.vocabulary import load_vocabulary

__all__ = ["TritonPythonModel"]


class TritonPythonModel(Stage):
    """`text` to `input_ids` and `tokens`; the parameter `length` is the number of words that the model reads."""

    def open(self, folder: Path, parameters: Mapping[str, str]) -> None:
        """Load the word list."""
        self._vocabulary = load_vocabulary(folder / "vocabulary.json")
        self._length = int(parameters["length"])

    def compute(self, inputs: Arrays) -> Arrays:
        """Ids of one request."""
        ids, tokens = self._vocabulary.encode(read_texts(inputs["text"].ravel()), self._length)
        return {"input_ids": ids, "tokens": tokens}
