"""What every Python stage does alike: read its configuration, answer each request by itself, name itself in errors."""

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt
import triton_python_backend_utils as pb_utils

from zooserve_ensembles.stages.contract import BrokenContract, check_outputs, read_outputs

__all__ = ["Arrays", "Outcome", "Stage"]

IDLE_NICENESS = 20
"""One beyond the lowest that `nice` knows: scheduled where nobody else wants the core."""

Arrays = Mapping[str, npt.NDArray[Any]]
Outcome = Arrays | Exception


class Stage(ABC):
    """One instance of a stage. Subclasses load in `open` and compute in `compute`."""

    def initialize(self, args: dict[str, str]) -> None:
        """Called by Triton once, before any request."""
        self._name = f"{args['model_name']} version {args['model_version']}"
        config = json.loads(args["model_config"])
        self._inputs = tuple(entry["name"] for entry in config["input"])
        self._warmups_left = sum(max(1, sample.get("count", 0)) for sample in config.get("model_warmup", []))
        self._declared = read_outputs(config)
        parameters = {key: value["string_value"] for key, value in config.get("parameters", {}).items()}
        _set_niceness(int(parameters.get("niceness", 0)))
        try:
            self.open(Path(args["model_repository"]) / args["model_version"], parameters)
        except Exception as exc:
            raise pb_utils.TritonModelException(f"{self._name}: {exc}") from exc

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """One response per request, in order; an error answers its own request only."""
        outcomes = self._outcomes([self._arrays(request) for request in requests])
        respond = self._response
        if self._warmups_left:
            self._warmups_left -= 1
            respond = self._response_to_warmup
        return [respond(self._checked(outcome)) for outcome in outcomes]

    @abstractmethod
    def open(self, folder: Path, parameters: Mapping[str, str]) -> None:
        """Load what lies in the version's folder."""

    @abstractmethod
    def compute(self, inputs: Arrays) -> Arrays:
        """The outputs of one request."""

    def compute_all(self, requests: Sequence[Arrays]) -> Sequence[Outcome]:
        """The outcome of each request of a batch."""
        return [self._attempt(inputs) for inputs in requests]

    def _outcomes(self, requests: Sequence[Arrays]) -> Sequence[Outcome]:
        try:
            return self.compute_all(requests)
        except Exception as exc:  # left to Triton, its text would name an instance and no version
            return [exc] * len(requests)

    def _checked(self, outcome: Outcome) -> Outcome:
        if isinstance(outcome, Exception):
            return outcome
        try:
            check_outputs(outcome, self._declared)
        except BrokenContract as broken:
            return broken
        return outcome

    def _attempt(self, inputs: Arrays) -> Outcome:
        try:
            return self.compute(inputs)
        except Exception as exc:  # whatever it is, it must not take the batch's other requests down
            return exc

    def _arrays(self, request: Any) -> Arrays:
        return {name: pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in self._inputs}

    def _response(self, outcome: Outcome) -> Any:
        if isinstance(outcome, Exception):
            code = (
                pb_utils.TritonError.INVALID_ARG if isinstance(outcome, ValueError) else pb_utils.TritonError.INTERNAL
            )
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"{self._name}: {outcome}", code))
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in outcome.items()])

    def _response_to_warmup(self, outcome: Outcome) -> Any:
        """A fault is only logged: a warm-up that fails ended Triton 2.51, with all its models, in 8 of 11 starts.

        Whoever asks the stage then, the router's probe first, gets the fault as his answer.
        """
        if isinstance(outcome, Exception):
            pb_utils.Logger.log_error(f"{self._name}: its warm-up failed: {outcome}")
            return pb_utils.InferenceResponse([])
        return self._response(outcome)


def _set_niceness(increment: int) -> None:
    if increment > 0:
        # os.nice reaches only the calling thread on Linux, and numpy has started its own by now.
        for task in Path("/proc/self/task").iterdir():
            if increment >= IDLE_NICENESS:
                os.sched_setscheduler(int(task.name), os.SCHED_IDLE, os.sched_param(0))
            else:
                os.setpriority(os.PRIO_PROCESS, int(task.name), increment)
