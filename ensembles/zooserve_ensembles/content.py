"""The ends of a file as magika's network reads them."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

__all__ = ["ContentTooShort", "Ends"]


class ContentTooShort(ValueError):
    """A file has too few bytes to tell what it is."""


@dataclass(frozen=True)
class Ends:
    """How much of a file is read; the numbers are the network's own, from its config.json."""

    first: int
    last: int
    block: int
    """Blanks are stripped within so many bytes at either end."""
    least: int
    """Bytes that are left then, at least, in a file that can be told."""
    padding: int
    """Stands where there is no byte."""

    @classmethod
    def from_file(cls, path: Path) -> "Ends":
        """Those of a magika model. Raises ValueError for one that reads a file otherwise."""
        config = json.loads(path.read_text(encoding="utf-8"))
        if config["mid_size"] or config["use_inputs_at_offsets"]:
            raise ValueError(
                f"{path.name} is of a magika model that reads more than a file's ends; here only those are"
            )
        return cls(
            first=config["beg_size"],
            last=config["end_size"],
            block=config["block_size"],
            least=config["min_file_size_for_dl"],
            padding=config["padding_token"],
        )

    def of(self, content: bytes) -> npt.NDArray[np.int32]:
        """The first and last bytes, blanks around them left out. Raises ContentTooShort."""
        beginning = content[: self.block].lstrip()[: self.first]
        end = content[-self.block :].rstrip()[-self.last :]
        if len(beginning) < self.least:
            raise ContentTooShort(
                f"it has {len(beginning)} bytes besides blanks; {self.least} are needed to tell its type"
            )
        ends = np.full(self.first + self.last, self.padding, np.int32)
        ends[: len(beginning)] = np.frombuffer(beginning, np.uint8)
        ends[len(ends) - len(end) :] = np.frombuffer(end, np.uint8)
        return ends
