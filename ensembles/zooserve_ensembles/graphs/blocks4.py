"""Weights of 4 bits in blocks with a scale each, kept as they are: ONNX Runtime's own operators compute with them.

What a block means is lossless against its source (GGML's Q4_0): value = (digit - 8) x scale. The products are summed
in 32-bit floats, so a row's result does not depend on its batch-mates.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from zooserve_ensembles.graphs.writing import Graph

__all__ = ["BLOCK", "Blocks4"]

BLOCK = 32
"""Weights that share a scale."""

MICROSOFT = "com.microsoft"
FLOAT32_SUMS = 1
"""MatMulNBits' accuracy level: activations stay floats."""


@dataclass(frozen=True)
class Blocks4:
    """A matrix [rows, columns] by blocks along its columns."""

    digits: npt.NDArray[np.uint8]
    """[rows, columns / 2]: column 2i in the low half of byte i, column 2i + 1 in the high half."""
    scales: npt.NDArray[np.float32]
    """[rows, columns / BLOCK]."""

    @classmethod
    def from_q4_0(cls, raw: bytes | memoryview, rows: int, columns: int) -> "Blocks4":
        """GGML's form: per block a 16-bit float, then 16 bytes of which byte i holds columns i and i + 16."""
        blocks = np.frombuffer(raw, np.uint8).reshape(rows, columns // BLOCK, 2 + BLOCK // 2)
        scales = np.ascontiguousarray(blocks[..., :2]).view(np.float16)[..., 0].astype(np.float32)
        packed = blocks[..., 2:]
        digits = np.concatenate([packed & 15, packed >> 4], axis=-1)
        pairs = (digits[..., ::2] | digits[..., 1::2] << 4).reshape(rows, columns // 2)
        return cls(pairs, scales)

    def values(self) -> npt.NDArray[np.float32]:
        """The matrix in floats."""
        digits = np.stack([self.digits & 15, self.digits >> 4], axis=-1).astype(np.float32)
        blocks = digits.reshape(*self.scales.shape, BLOCK) - 8
        return np.asarray((blocks * self.scales[..., None]).reshape(len(self.digits), -1), np.float32)

    def multiply(self, graph: Graph, name: str, given: str, output: str) -> str:
        """Write `given` times the transposed matrix."""
        rows, columns = self.digits.shape[0], self.digits.shape[1] * 2
        digits = graph.constant(f"{name}/digits", self.digits.reshape(rows, columns // BLOCK, BLOCK // 2), np.uint8)
        scales = graph.constant(f"{name}/scales", self.scales.ravel())
        return graph.node(
            "MatMulNBits",
            [given, digits, scales],
            output,
            domain=MICROSOFT,
            K=columns,
            N=rows,
            bits=4,
            block_size=BLOCK,
            accuracy_level=FLOAT32_SUMS,
        )

    def gather(self, graph: Graph, name: str, rows: str, output: str) -> str:
        """Write the floats of the rows whose numbers are in `rows`."""
        digits = graph.constant(f"{name}/digits", self.digits, np.uint8)
        scales = graph.constant(f"{name}/scales", self.scales)
        return graph.node(
            "GatherBlockQuantized",
            [digits, rows, scales],
            output,
            domain=MICROSOFT,
            gather_axis=0,
            quantize_axis=1,
            block_size=BLOCK,
            bits=4,
        )
