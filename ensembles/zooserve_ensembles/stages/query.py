"""Stage: a query to token ids and, in the same step, to the features that tell its language.

One step, because an ensemble's input may feed only one step whose queue is bounded: where two read it, a full queue
wedges Triton 2.51, or is never told to the caller.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from zooserve_ensembles.language import Automaton, features_of
from zooserve_ensembles.stages import tokenizer
from zooserve_ensembles.stages.stage import Arrays, Outcome
from zooserve_ensembles.texts import read_texts

__all__ = ["TritonPythonModel"]


class TritonPythonModel(tokenizer.TritonPythonModel):
    """What the tokenizer stage gives, and `features`, `counts` and `sharpness` with the automaton.npz beside."""

    def open(self, folder: Path, parameters: Mapping[str, str]) -> None:
        """Load both."""
        super().open(folder, parameters)
        self._automaton = Automaton.from_file(folder / "automaton.npz")

    def compute_all(self, requests: Sequence[Arrays]) -> Sequence[Outcome]:
        """The tokens of the whole batch in one call, each request's features by themselves."""
        tokenized = zip(requests, super().compute_all(requests), strict=True)
        return [
            outcome if isinstance(outcome, Exception) else self._both(inputs, outcome) for inputs, outcome in tokenized
        ]

    def _both(self, inputs: Arrays, tokens: Arrays) -> Arrays:
        found = features_of(self._automaton, read_texts(inputs["text"].ravel()))
        return {**tokens, "features": found.features, "counts": found.counts, "sharpness": found.sharpness}
