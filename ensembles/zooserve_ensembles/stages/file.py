"""Stage: files to their ends, as numbers."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from zooserve_ensembles.content import ContentTooShort, Ends
from zooserve_ensembles.stages.stage import Arrays, Stage

__all__ = ["TritonPythonModel"]


class TritonPythonModel(Stage):
    """`file` to `bytes`, as the config.json of the version's folder says."""

    def open(self, folder: Path, parameters: Mapping[str, str]) -> None:
        """Read how much of a file the network reads."""
        self._ends = Ends.from_file(folder / "config.json")

    def compute(self, inputs: Arrays) -> Arrays:
        """The ends of one request's files."""
        return {"bytes": np.stack([self._row(row, content) for row, content in enumerate(inputs["file"].ravel())])}

    def _row(self, row: int, content: bytes) -> npt.NDArray[np.int32]:
        try:
            return self._ends.of(content)
        except ContentTooShort as exc:
            raise ContentTooShort(f"file {row}: {exc}") from exc
