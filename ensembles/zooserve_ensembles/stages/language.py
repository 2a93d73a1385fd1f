"""Stage: texts to the features that tell their language."""

from collections.abc import Mapping
from pathlib import Path

from zooserve_ensembles.language import Automaton, features_of
from zooserve_ensembles.stages.stage import Arrays, Stage
from zooserve_ensembles.texts import read_texts

__all__ = ["TritonPythonModel"]


class TritonPythonModel(Stage):
    """`text` to `features`, `counts` and `sharpness`, with the automaton.npz of the version's folder.

    `tokens` are the bytes that were read.
    """

    def open(self, folder: Path, parameters: Mapping[str, str]) -> None:
        """Load the automaton."""
        self._automaton = Automaton.from_file(folder / "automaton.npz")

    def compute(self, inputs: Arrays) -> Arrays:
        """The features of one request."""
        found = features_of(self._automaton, read_texts(inputs["text"].ravel()))
        return {
            "features": found.features,
            "counts": found.counts,
            "sharpness": found.sharpness,
            "tokens": found.sizes,
        }
