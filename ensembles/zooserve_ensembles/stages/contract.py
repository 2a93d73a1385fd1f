"""What a stage made, held against its configuration: Triton 2.51 passes on whatever a Python model returns.

A wrong tensor then fails the next stage, which is named for it, or goes to the caller with a 200.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["BrokenContract", "Declared", "check_outputs", "read_outputs"]

_KINDS = {
    "TYPE_BOOL": "?",
    "TYPE_UINT8": "u1",
    "TYPE_UINT16": "u2",
    "TYPE_UINT32": "u4",
    "TYPE_UINT64": "u8",
    "TYPE_INT8": "i1",
    "TYPE_INT16": "i2",
    "TYPE_INT32": "i4",
    "TYPE_INT64": "i8",
    "TYPE_FP16": "f2",
    "TYPE_FP32": "f4",
    "TYPE_FP64": "f8",
}
"""A TYPE_STRING may be objects, bytes or text."""


class BrokenContract(Exception):
    """A stage made something else than its configuration says; the message tells both."""


@dataclass(frozen=True)
class Declared:
    """One output of a configuration, its shape with the rows where the model has batches."""

    name: str
    type: str
    shape: tuple[int, ...]

    def fits(self, array: npt.NDArray[Any]) -> bool:
        """Whether the array may be this output."""
        if self.type == "TYPE_STRING":
            same_type = array.dtype.kind in "OSU"
        else:
            same_type = array.dtype == np.dtype(_KINDS[self.type])
        return same_type and len(array.shape) == len(self.shape) and all(self._sizes_fit(array.shape))

    def _sizes_fit(self, shape: Sequence[int]) -> Iterator[bool]:
        return (wanted in (-1, size) for wanted, size in zip(self.shape, shape, strict=True))


def read_outputs(config: Mapping[str, Any]) -> tuple[Declared, ...]:
    """The outputs of a configuration in Triton's JSON form, which writes 64-bit numbers as strings."""
    rows = (-1,) if int(config.get("max_batch_size", 0)) > 0 else ()
    return tuple(
        Declared(entry["name"], entry["data_type"], (*rows, *(int(size) for size in entry["dims"])))
        for entry in config["output"]
    )


def check_outputs(made: Mapping[str, npt.NDArray[Any]], declared: Sequence[Declared]) -> None:
    """Raise BrokenContract unless every declared output was made, as it is declared."""
    for output in declared:
        if output.name not in made:
            raise BrokenContract(f"it made no {output.name}")
        array = made[output.name]
        if not output.fits(array):
            raise BrokenContract(
                f"it made {output.name} as {array.dtype} {list(array.shape)}; its configuration says "
                f"{output.type} {list(output.shape)}"
            )
