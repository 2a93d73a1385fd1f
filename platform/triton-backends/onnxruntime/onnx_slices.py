"""Runs of one model: alone by every thread that it may have, or several side by side, a thread for each.

Threads that share a run meet at every operator, and whoever comes first spins until the last is there. Beside other
processes that wastes the cores: 32 texts of 32 tokens in one run of two threads took 14.7 ms of CPU a text, as two runs
of one thread each 12.3 (eight busy neighbours). A single text is quicker by two threads, so both ways are kept.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnx_batches import Array, Arrays, BadTensor
from onnx_session import SessionSettings, open_session, run_options
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

__all__ = ["Slices"]


class Slices:
    """One model file, open. A second session, with its own copy of the weights, is for runs side by side."""

    def __init__(self, file: Path, settings: SessionSettings) -> None:
        self.session = open_session(file, settings)
        self._options = run_options(settings)
        self._at_once = settings.side_by_side
        if self._at_once > 1:
            narrow = replace(settings, intra_op_threads=1)
            self._narrow = self.session if settings.intra_op_threads == 1 else open_session(file, narrow)
            self._pool = ThreadPoolExecutor(self._at_once, "onnx-slice")

    def run(self, wanted: Sequence[str], slices: Sequence[Arrays]) -> list[list[Array]]:
        """The wanted outputs of each slice. Raises BadTensor for values that the model refuses."""
        if len(slices) == 1 or self._at_once == 1:
            return [self._run(self.session, wanted, inputs) for inputs in slices]
        return list(self._pool.map(partial(self._run, self._narrow, wanted), slices))

    def close(self) -> None:
        """End the threads."""
        if self._at_once > 1:
            self._pool.shutdown()

    def _run(self, session: ort.InferenceSession, wanted: Sequence[str], inputs: Arrays) -> list[Array]:
        try:
            texts = {name: _texts(array) for name, array in inputs.items() if array.dtype == object}
            return list(session.run(list(wanted), {**inputs, **texts}, self._options))
        except InvalidArgument as exc:
            raise BadTensor(str(exc)) from exc


def _texts(array: Array) -> Array:
    """Triton's strings are bytes, ONNX Runtime's are text. Raises BadTensor where they are not UTF-8."""
    try:
        return np.array([item.decode() for item in array.ravel()], object).reshape(array.shape)
    except UnicodeDecodeError as exc:
        raise BadTensor(f"not UTF-8: {exc}") from exc
