"""Stage: encoded images to pixels."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from zooserve_ensembles.images import ImageUnreadable, decoded, pixels_of
from zooserve_ensembles.stages.stage import Arrays, Stage

__all__ = ["TritonPythonModel"]


class TritonPythonModel(Stage):
    """`image` to `pixels`; the parameter `max_pixels` bounds what one image may hold."""

    def open(self, folder: Path, parameters: Mapping[str, str]) -> None:
        """Nothing to load."""
        self._max_pixels = int(parameters["max_pixels"])

    def compute(self, inputs: Arrays) -> Arrays:
        """The pixels of one request's images."""
        return {"pixels": np.stack([self._row(row, content) for row, content in enumerate(inputs["image"].ravel())])}

    def _row(self, row: int, content: bytes) -> npt.NDArray[np.float32]:
        try:
            return pixels_of(decoded(content, self._max_pixels))
        except ImageUnreadable as exc:
            raise ImageUnreadable(f"image {row}: {exc}") from exc
