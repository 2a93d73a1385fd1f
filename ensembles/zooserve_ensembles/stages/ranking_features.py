"""Stage: token ids and vectors of a query and its documents to what a tree model ranks by."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from zooserve_ensembles.ranking_features import rank_features
from zooserve_ensembles.stages.stage import Arrays, Stage

__all__ = ["TritonPythonModel"]


class TritonPythonModel(Stage):
    """`input_ids`, `attention_mask` and vectors of a request, row 0 its query, to `features`."""

    def open(self, folder: Path, parameters: Mapping[str, str]) -> None:
        """Load how rare each token is."""
        self._rarity = np.load(folder / "rarity.npy", allow_pickle=False).astype(np.float32)

    def compute(self, inputs: Arrays) -> Arrays:
        """The features of one request."""
        features = rank_features(
            inputs["input_ids"],
            inputs["attention_mask"],
            inputs["token_embeddings"],
            inputs["sentence_embedding"],
            self._rarity,
        )
        return {"features": features}
