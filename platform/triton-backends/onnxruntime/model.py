"""Triton's `onnxruntime` backend, in Python: every model whose configuration says `backend: "onnxruntime"` runs this.

Triton batches (its dynamic batcher), this file joins the batch, runs it and splits it. Requests of unequal shape in
one call are grouped, so inputs may say `allow_ragged_batch`: without it the batcher joins only neighbours in the
queue that are equal in shape, and mixed lengths hardly batch at all. The pure parts are in the files beside it.

No `__init__.py` here: this folder is named like the package it imports, which wins only over a folder without one.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils
from onnx_batches import Array, Arrays, Failure, Job, Result, RunPlan, grouped, run_group
from onnx_contract import check_contract, declared_tensors
from onnx_session import (
    ModelUnusable,
    SessionSettings,
    open_session,
    provider_names,
    read_settings,
    set_niceness,
)
from onnx_slices import Slices

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    """One instance of one ONNX model."""

    @staticmethod
    def auto_complete_config(auto_complete_model_config: Any) -> Any:
        """Declare the file's inputs and outputs where the configuration leaves either out."""
        config = auto_complete_model_config.as_dict()
        if config.get("input") and config.get("output"):
            return auto_complete_model_config
        session = open_session(Path(pb_utils.get_model_dir()) / _file_name(config), SessionSettings())
        batched = int(config.get("max_batch_size", 0)) > 0
        for tensor in declared_tensors(session.get_inputs(), batched=batched):
            auto_complete_model_config.add_input(tensor)
        for tensor in declared_tensors(session.get_outputs(), batched=batched):
            auto_complete_model_config.add_output(tensor)
        return auto_complete_model_config

    def initialize(self, args: dict[str, str]) -> None:
        """Open the version's file and hold it against the configuration."""
        self._name = f"{args['model_name']} version {args['model_version']}"
        self._labels = {"model": args["model_name"], "version": args["model_version"]}
        self._instance = args["model_instance_name"]
        config = json.loads(args["model_config"])
        self._warmups_left = sum(max(1, sample.get("count", 0)) for sample in config.get("model_warmup", []))
        device_id = int(args["model_instance_device_id"]) if args["model_instance_kind"] == "GPU" else None
        try:
            self._open(Path(args["model_repository"]) / args["model_version"], config, device_id)
        except ModelUnusable as exc:
            raise pb_utils.TritonModelException(f"{self._name}: {exc}") from exc

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """The answers of the last group that ran; those of groups before it have left as soon as they were there.

        So a short text does not wait for the long ones of its call, and a call of one shape pays no extra message.
        """
        warming, self._warmups_left = self._warmups_left > 0, max(0, self._warmups_left - 1)
        answers: list[Any] = [self._dropped() if request.is_cancelled() else None for request in requests]
        waiting = [index for index, answer in enumerate(answers) if answer is None]
        jobs = [self._job(requests[index]) for index in waiting]
        groups = grouped(jobs, batched=self._batched)
        for number, group in enumerate(groups, start=1):
            results = run_group([jobs[place] for place in group], self._run, self._plan)
            for place, result in zip(group, results, strict=True):
                answer = self._answer_to_warmup(result) if warming else self._answer(result)
                if number == len(groups):
                    answers[waiting[place]] = answer
                else:
                    requests[waiting[place]].get_response_sender().send(answer, flags=FINAL)
        return answers

    def finalize(self) -> None:
        """Triton: the model is unloaded."""
        self._slices.close()

    def _open(self, folder: Path, config: dict[str, Any], device_id: int | None) -> None:
        settings = read_settings(config, device_id)
        # Before the session starts its threads, so that they inherit it.
        set_niceness(settings.niceness)
        self._slices = Slices(folder / _file_name(config), settings)
        self._batched = int(config["max_batch_size"]) > 0
        inputs, outputs = self._slices.session.get_inputs(), self._slices.session.get_outputs()
        check_contract(config, inputs, outputs, batched=self._batched)
        self._inputs = tuple(entry["name"] for entry in config["input"])
        self._plan = _plan(config, settings) if self._batched else RunPlan()
        self._count_runs()
        pb_utils.Logger.log_info(f"{self._name}: {provider_names(settings.providers)}")

    def _count_runs(self) -> None:
        # Triton's statistics count calls: rows per run is its inference count over the runs. A metric whose family is
        # garbage fails each update, and once took the whole server down: the families are kept.
        self._families = [
            pb_utils.MetricFamily(name=name, description=description, kind=pb_utils.MetricFamily.COUNTER)
            for name, description in (
                ("zooserve_onnx_runs", "Runs of ONNX Runtime"),
                ("zooserve_onnx_run_elements", "Elements of the first input in all runs: rows x length, padding too"),
                ("zooserve_instance_runs_total", "Runs of ONNX Runtime by the instance of the model that did them"),
            )
        ]
        runs, elements, by_instance = self._families
        self._runs, self._elements = runs.Metric(labels=self._labels), elements.Metric(labels=self._labels)
        # Not `instance`: that is Prometheus' own label for the server it scrapes.
        self._instance_runs = by_instance.Metric(labels={**self._labels, "model_instance": self._instance})

    def _job(self, request: Any) -> Job:
        inputs = {name: pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in self._inputs}
        return Job(inputs, tuple(request.requested_output_names()))

    def _run(self, wanted: Sequence[str], slices: Sequence[Arrays]) -> list[list[Array]]:
        # Counted here, not by the slices' threads: a metric that several of them moved took the server down.
        self._runs.increment(len(slices))
        self._instance_runs.increment(len(slices))
        self._elements.increment(sum(next(iter(inputs.values())).size for inputs in slices))
        return self._slices.run(wanted, slices)

    def _dropped(self) -> Any:
        return self._error("the caller left before it ran", pb_utils.TritonError.CANCELLED)

    def _answer(self, result: Result) -> Any:
        if isinstance(result, Failure):
            kind = pb_utils.TritonError.INVALID_ARG if result.callers_fault else pb_utils.TritonError.INTERNAL
            return self._error(result.reason, kind)
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in result.items()])

    def _answer_to_warmup(self, result: Result) -> Any:
        """A fault is only logged: a warm-up that fails ended Triton 2.51, with all its models, in 8 of 11 starts.

        Whoever asks the model then, the router's probe first, gets the fault as his answer.
        """
        if isinstance(result, Failure):
            pb_utils.Logger.log_error(f"{self._name}: its warm-up failed: {result.reason}")
            return pb_utils.InferenceResponse([])
        return self._answer(result)

    def _error(self, reason: str, kind: Any) -> Any:
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"{self._name}: {reason}", kind))


def _plan(config: dict[str, Any], settings: SessionSettings) -> RunPlan:
    if settings.mask and settings.mask not in [entry["name"] for entry in config["input"]]:
        raise ModelUnusable(f'parameter mask_input is "{settings.mask}", and no input is called that')
    per_token = frozenset(entry["name"] for entry in config["output"] if int(entry["dims"][0]) == -1)
    return RunPlan(settings.run_elements, settings.side_by_side, settings.mask, per_token)


def _file_name(config: dict[str, Any]) -> str:
    return str(config.get("default_model_filename") or "model.onnx")
