"""Triton's vLLM backend played over a real engine: its tensors, its JSON, its increments, its errors."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import real_engine
import triton_python_backend_utils as pb_utils

from zooserve.leaf.job import Cancelled, Failed, Job

_KNOWN = ("max_tokens", "temperature", "top_p", "seed", "frequency_penalty", "presence_penalty", "stop", "logprobs")
_FLAGS = ("return_finish_reason", "return_num_input_tokens", "return_num_output_tokens", "return_logprobs")


class TritonPythonModel:
    def initialize(self, args: Mapping[str, str]) -> None:
        folder = Path(args["model_repository"]) / args["model_version"]
        self._engine, self._llama = real_engine.opened(folder)
        self._sampler = real_engine.ActiveSampler(self._engine, args)

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            try:
                self._accept(request)
            except Exception as exc:
                send_error(request.get_response_sender(), f"Error generating stream: {exc}")

    def finalize(self) -> None:
        self._sampler.close()
        self._engine.close()

    def _accept(self, request: Any) -> None:
        tensors = real_engine.tensors_of(request)
        parameters = json.loads(tensors["sampling_parameters"][0])
        if parameters.get("lora_name") is not None:
            send_error(request.get_response_sender(), "LoRA feature is not enabled.")
            return
        if not tensors["exclude_input_in_output"][0]:
            raise ValueError("When streaming, `exclude_input_in_output` = False is not allowed.")
        sampling = sampling_of(dict(parameters))
        wanted = {name for name in _FLAGS if name in tensors and tensors[name][0]}
        reply = Reply(request.get_response_sender(), self._llama, wanted, parameters.get("logprobs"))
        self._engine.submit(tensors["text_input"][0].decode(), sampling, reply)


def sampling_of(parameters: dict[str, Any]) -> real_engine.FullSampling:
    """As TritonSamplingParams reads them: what is wrong is an AttributeError on None, whatever it was."""
    try:
        structure = parameters.pop("structured_outputs", None)
        parameters.pop("lora_name", None)
        if not set(parameters) <= set(_KNOWN) or not 0 < parameters.get("top_p", 1.0) <= 1:
            raise ValueError(f"not vLLM's: {parameters}")
        extra = {} if structure is None else grammar_of(json.loads(structure))
        if (logprobs := parameters.pop("logprobs", None)) is not None:
            extra["logprobs"] = max(1, logprobs)
        stop = tuple(parameters.pop("stop", ()))
        return real_engine.FullSampling(**parameters, stop=stop, extra=extra)
    except Exception as exc:
        raise AttributeError("'NoneType' object has no attribute 'lora_name'") from exc


def grammar_of(structure: dict[str, Any]) -> dict[str, Any]:
    if len(structure) != 1:
        raise ValueError("You can only use one kind of structured outputs constraint")
    return {"json_schema": structure.get("json", {"type": "object"})}


class Reply:
    """Sends what is new, as vLLM's backend does."""

    def __init__(self, sender: Any, llama: Any, wanted: set[str], alternatives: int | None) -> None:
        self._sender = sender
        self._llama = llama
        self._wanted = wanted
        self._alternatives = alternatives
        self._sent_characters = self._sent_tokens = 0

    def progressed(self, job: Job) -> None:
        self._sender.send(self._response(job, "None"))

    def ended(self, job: Job) -> None:
        match job.outcome:
            case Cancelled():
                send_error(self._sender, "Request was cancelled", pb_utils.TritonError.CANCELLED)
            case Failed(message):
                send_error(self._sender, f"Error generating stream: {message}")
            case finished:
                self._sender.send(self._response(job, finished.reason), flags=real_engine.FINAL)

    def left(self) -> bool:
        return bool(self._sender.is_cancelled())

    def _response(self, job: Job, reason: str) -> Any:
        new, self._sent_characters = job.text[self._sent_characters :], len(job.text)
        tokens, self._sent_tokens = job.generated_tokens - self._sent_tokens, job.generated_tokens
        made = [real_engine.text("text_output", new)]
        if "return_finish_reason" in self._wanted:
            made.append(real_engine.text("finish_reason", reason))
        if "return_num_input_tokens" in self._wanted:  # without a dimension, as the backend makes it
            made.append(pb_utils.Tensor("num_input_tokens", np.asarray(job.prompt_tokens, dtype=np.uint32)))
        if "return_num_output_tokens" in self._wanted:
            made.append(pb_utils.Tensor("num_output_tokens", np.asarray([tokens], dtype=np.uint32)))
        if "return_logprobs" in self._wanted:
            positions = [as_vllm(token, self._alternatives or 0) for token in self._llama.take_tokens()]
            made.append(real_engine.text("logprobs", json.dumps(positions)))
        return pb_utils.InferenceResponse(output_tensors=made)


def as_vllm(token: dict[str, Any], alternatives: int) -> dict[str, Any]:
    """One position: the chosen token first, then the likeliest."""
    top = token["top_logprobs"]
    rank = next((n for n, each in enumerate(top, 1) if each["id"] == token["id"]), len(top) + 1)
    ranked = [(token, rank), *((each, n) for n, each in enumerate(top[:alternatives], 1))]
    return {
        str(each["id"]): {"logprob": each["logprob"], "rank": n, "decoded_token": each["token"]} for each, n in ranked
    }


def send_error(sender: Any, message: str, *code: int) -> None:
    error = pb_utils.TritonError(message, *code)
    sender.send(pb_utils.InferenceResponse([real_engine.text("text_output", "N/A")], error), flags=real_engine.FINAL)
