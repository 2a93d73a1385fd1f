"""Stands in for any stage, inside Triton: zeros of the declared shapes, until the file `fault` says how to fail.

`error` and `broken` go through what our own stages have in common; `native`, `exception` and `nothing` are what a
backend does that knows nothing of it.
"""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from zooserve_ensembles.stages.stage import Arrays, Stage

LENGTH = 16
"""What a varying size is here."""


class TritonPythonModel(Stage):
    """One stage, or a head, or an encoder."""

    def initialize(self, args: dict[str, str]) -> None:
        """Triton: read the configuration, as a stage does."""
        super().initialize(args)
        self._fault_file = Path(args["model_repository"]) / "fault"
        self._config = json.loads(args["model_config"])

    def open(self, folder: Path, parameters: Mapping[str, str]) -> None:
        """There is nothing to load."""

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Fail as told where a stage of ours would not."""
        fault = self._fault()
        if fault == "exception":
            raise RuntimeError("provoked")
        if fault == "native":
            error = pb_utils.TritonError("onnx runtime error 2: provoked")
            return [pb_utils.InferenceResponse(error=error) for _ in requests]
        if fault == "nothing":
            return [pb_utils.InferenceResponse([]) for _ in requests]
        if fault == "slow":
            self._wait()
        return super().execute(requests)

    def _wait(self) -> None:
        running = self._fault_file.with_name("running")
        running.touch()
        while self._fault() == "slow":
            time.sleep(0.01)
        running.unlink()

    def compute(self, inputs: Arrays) -> Arrays:
        """Zeros, one row per row of the first input."""
        fault = self._fault()
        if fault == "error":
            raise RuntimeError("provoked")
        outputs = self._zeros(len(next(iter(inputs.values()))))
        return (
            {name: np.zeros(array.shape, np.int8) for name, array in outputs.items()} if fault == "broken" else outputs
        )

    def _zeros(self, rows: int) -> dict[str, Any]:
        made = {}
        for entry in self._config["output"]:
            dtype = pb_utils.triton_string_to_numpy(entry["data_type"])
            shape = (rows, *(LENGTH if int(size) == -1 else int(size) for size in entry["dims"]))
            text = entry["data_type"] == "TYPE_STRING"
            made[entry["name"]] = np.full(shape, b"x", object) if text else np.zeros(shape, dtype)
        return made

    def _fault(self) -> str:
        try:
            return self._fault_file.read_text()
        except FileNotFoundError:
            return ""
