"""Stage: token vectors of a query and its documents to scores."""

from collections.abc import Mapping
from pathlib import Path

from zooserve_ensembles.late_interaction import late_interaction_scores
from zooserve_ensembles.stages.stage import Arrays, Stage

__all__ = ["TritonPythonModel"]


class TritonPythonModel(Stage):
    """`token_embeddings`, `attention_mask` and `sentence_embedding` of a request, row 0 its query, to `score`."""

    def open(self, folder: Path, parameters: Mapping[str, str]) -> None:
        """Nothing to load: the computation has no weights."""

    def compute(self, inputs: Arrays) -> Arrays:
        """Scores of one request."""
        scores = late_interaction_scores(
            inputs["token_embeddings"], inputs["attention_mask"], inputs["sentence_embedding"]
        )
        return {"score": scores}
