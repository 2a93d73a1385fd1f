"""TensorRT-LLM's engine path played over a real engine: batch dimensions, counts per response, no mark of the end.

As `tensorrt_llm_bls` it never asks whether its caller has left, as that one's source does not; as `tensorrt_llm`
behind an ensemble it does (`cancellation_check_period_ms`), as the C++ backend does. Kinder than the real one in one
thing: llama.cpp holds a character back until it is whole, where the real front writes its tokens one by one.
"""

import json
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import real_engine
import triton_python_backend_utils as pb_utils

from zooserve.leaf.job import Cancelled, Failed, Job

_TIMES = ("arrival", "first_scheduled", "first_token", "last_token")


class TritonPythonModel:
    def initialize(self, args: Mapping[str, str]) -> None:
        folder = Path(args["model_repository"]) / args["model_version"]
        parameters = json.loads(args["model_config"])["parameters"]
        self._accumulates = parameters.get("accumulate_tokens", {}).get("string_value") == "true"
        self._notices = "cancellation_check_period_ms" in parameters
        self._engine, _ = real_engine.opened(folder)
        self._sampler = real_engine.ActiveSampler(self._engine, args)

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            sender = request.get_response_sender()
            try:
                tensors = real_engine.tensors_of(request)
                reply = Reply(sender, self._accumulates, self._notices, set(tensors))
                self._engine.submit(tensors["text_input"][0, 0].decode(), sampling_of(tensors), reply)
            except Exception:
                send_error(sender, traceback.format_exc())

    def finalize(self) -> None:
        self._sampler.close()
        self._engine.close()


def sampling_of(tensors: dict[str, Any]) -> real_engine.FullSampling:
    """As the backend reads them: every tensor with its batch of one."""
    if any(tensor.shape[0] != 1 for tensor in tensors.values()):
        raise ValueError("Expected batch size of 1")
    names = ("max_tokens", "temperature", "top_k", "top_p", "seed", "frequency_penalty", "presence_penalty")
    scalars = {name: tensors[name].item() for name in names if name in tensors}
    extra = {}
    if "guided_decoding_guide_type" in tensors:
        kind = tensors["guided_decoding_guide_type"][0, 0].decode()
        guide = {"type": "object"} if kind == "json" else json.loads(tensors["guided_decoding_guide"][0, 0])
        extra["json_schema"] = guide
    # The stop words' own tokens are part of the answer there: whoever asked cuts them off.
    return real_engine.FullSampling(**scalars, extra=extra)


class Reply:
    """Sends what a front sends: responses, then an end without one."""

    def __init__(self, sender: Any, accumulates: bool, notices: bool, asked: set[str]) -> None:
        self._sender = sender
        self._accumulates = accumulates
        self._notices = notices
        self._asked = asked
        self._sent_characters = self._sent_tokens = 0

    def progressed(self, job: Job) -> None:
        self._sender.send(self._response(job))

    def ended(self, job: Job) -> None:
        match job.outcome:
            case Cancelled():
                send_error(self._sender, "Request was cancelled")
            case Failed(message):
                send_error(self._sender, f"Traceback (most recent call last):\nException: {message}")
            case _:
                self._sender.send(self._response(job, last=True))
                self._sender.send(flags=real_engine.FINAL)

    def left(self) -> bool:
        return self._notices and bool(self._sender.is_cancelled())

    def _response(self, job: Job, *, last: bool = False) -> Any:
        new, self._sent_characters = job.text[self._sent_characters :], len(job.text)
        tokens, self._sent_tokens = job.generated_tokens - self._sent_tokens, job.generated_tokens
        made = [real_engine.text("text_output", job.text if self._accumulates else new)]
        if "return_num_input_tokens" in self._asked:
            made.append(number("num_input_tokens", job.prompt_tokens, np.int32))
        if "return_num_output_tokens" in self._asked:
            made.append(number("num_output_tokens", tokens, np.int32))
        if last and "return_perf_metrics" in self._asked:
            made += [number(f"{name}_time_ns", getattr(job, f"{name}_ns"), np.int64) for name in _TIMES]
        return pb_utils.InferenceResponse(output_tensors=made)


def number(name: str, value: int, dtype: type) -> Any:
    return pb_utils.Tensor(name, np.array([[value]], dtype=dtype))


def send_error(sender: Any, message: str) -> None:
    sender.send(pb_utils.InferenceResponse([], pb_utils.TritonError(message)))
    sender.send(flags=real_engine.FINAL)
