"""TensorRT-LLM's engine path: the front models `tensorrt_llm_bls` and `ensemble` of its C++ Triton backend.

Unlike llmapi's: tensors have a batch dimension of one; names differ (`max_tokens`, `stop_words`, `stream`); numbers
are numbers; text comes in new parts, or whole each time where the front accumulates tokens, as its configuration
says; and no response is marked as the last, nor says why the answer ended. So the tokens are counted against the
grant: all of it used is `length`, anything less is `stop`.
"""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from zooserve.errors import BackendFailed, BackendUnavailable, Unsupported
from zooserve_router.backends.triton_stream import TritonStream, UnsentText, bytes_of, integer_of, tensor
from zooserve_router.chat.generation import Constraint, Generation, Piece, Sampling, Timings, Usage, Work

__all__ = ["EnginePath", "Front", "inputs_of"]

_COUNTS = ("return_num_input_tokens", "return_num_output_tokens")
_TIMES = ("arrival_time_ns", "first_scheduled_time_ns", "first_token_time_ns", "last_token_time_ns")
_TRUE = ("true", "yes", "1", "t")
_SENT: Mapping[str, str] = MappingProxyType(
    {
        "text_input": "BYTES",
        "max_tokens": "INT32",
        "stream": "BOOL",
        "exclude_input_in_output": "BOOL",
        "temperature": "FP32",
        "top_k": "INT32",
        "top_p": "FP32",
        "seed": "UINT64",
        "frequency_penalty": "FP32",
        "presence_penalty": "FP32",
        "stop_words": "BYTES",
        "return_num_input_tokens": "BOOL",
        "return_num_output_tokens": "BOOL",
        "return_perf_metrics": "BOOL",
        "guided_decoding_guide_type": "BYTES",
        "guided_decoding_guide": "BYTES",
    }
)
"""The inputs that are ever sent: no LoRA weights, no images, no prompt tables."""


@dataclass(frozen=True)
class Front:
    """What differs between fronts and their releases, as the model's configuration tells it."""

    inputs: frozenset[str]
    accumulates: bool
    """Whether `text_output` is the whole text each time."""

    @classmethod
    def read(cls, configuration: Any) -> "Front":
        """Raises BackendFailed for a front that this adapter cannot tell the end of an answer by."""
        front = cls(
            frozenset(each.name for each in configuration.input),
            configuration.parameters["accumulate_tokens"].string_value.lower() in _TRUE,
        )
        missing = [name for name in ("text_input", "max_tokens", *_COUNTS) if name not in front.inputs]
        if missing:
            raise BackendFailed(
                f"{configuration.name} has no {', '.join(missing)}: it is no front of TensorRT-LLM's engine path, or "
                "one from before it counted tokens. Take the fronts of the release that built the engine."
            )
        return front


class EnginePath:
    """One front model on one Triton. Must be made inside a running event loop."""

    def __init__(self, address: str, model: str) -> None:
        self._stream = TritonStream(address, model)
        self._front: Front | None = None

    async def close(self) -> None:
        """Close the channel, and with it every stream that is left."""
        await self._stream.close()

    async def generate(self, work: Work, timeout_s: float) -> AsyncGenerator[Piece, None]:
        """The answer piece by piece; the last piece, without text, says how it ended.

        Closing the generator, or cancelling the task that reads it, cancels the call.
        """
        if not isinstance(work, Generation):
            raise Unsupported(f"{self._stream.model} takes rendered prompts only.")
        try:
            front = self._front = self._front or Front.read(await self._stream.configuration(timeout_s))
            reader = _Reader(work.sampling.max_tokens, front.accumulates)
            async with aclosing(self._stream.responses(inputs_of(work, front), timeout_s)) as responses:
                async for result in responses:
                    if text := reader.text(result):
                        yield Piece(text)
        except BackendUnavailable:
            self._front = None  # who comes back may be another release
            raise
        yield reader.end()


@dataclass
class _Reader:
    """Reads one answer's responses in their order; the stream's end is the answer's."""

    granted: int
    accumulates: bool
    unsent: UnsentText = field(default_factory=UnsentText)
    whole: bytes = b""
    answered: bool = False
    prompt_tokens: int = 0
    completion_tokens: int = 0
    timings: Timings | None = None

    def text(self, result: Any) -> str:
        """What is new in a response."""
        self.answered = True
        self.prompt_tokens = integer_of(result, "num_input_tokens") or self.prompt_tokens
        self.completion_tokens += integer_of(result, "num_output_tokens") or 0
        self.timings = _timings(result) or self.timings
        part = bytes_of(result, "text_output") or b""
        if not self.accumulates:
            return part.decode("utf-8", "replace")
        self.whole = part or self.whole
        return self.unsent.advance(self.whole, is_last=False)

    def end(self) -> Piece:
        """The last piece. Raises BackendFailed when no response came at all."""
        if not self.answered:
            raise BackendFailed("The server ended an answer before it began.")
        rest = self.unsent.advance(self.whole, is_last=True) if self.accumulates else ""
        reason = "length" if self.completion_tokens >= self.granted else "stop"
        return Piece(rest, reason, self.timings, usage=Usage(self.prompt_tokens, self.completion_tokens))


def _timings(result: Any) -> Timings | None:
    """The engine's phases, which come with the last response; None before."""
    times = [integer_of(result, name) for name in _TIMES]
    if not all(times):
        return None
    arrival, scheduled, first, last = (time / 1e9 for time in times if time is not None)
    return Timings(queue_s=scheduled - arrival, prefill_s=first - scheduled, decode_s=last - first)


def inputs_of(generation: Generation, front: Front) -> list[Any]:
    """The request's tensors, by the contract's names, each with its batch dimension; nothing else is sent."""
    values: dict[str, list[Any]] = {
        "text_input": [generation.prompt.encode()],
        "max_tokens": [generation.sampling.max_tokens],
        "stream": [True],
        **{name: [True] for name in _COUNTS},
        **{name: [True] for name in ("exclude_input_in_output", "return_perf_metrics") if name in front.inputs},
        **_choice(generation.sampling),
        **_guide(generation.constraint),
    }
    if generation.lora is not None:
        raise Unsupported("The engine path knows LoRA adapters by their weights only, not by name.", param="model")
    if generation.sampling.stop:
        values["stop_words"] = [text.encode() for text in generation.sampling.stop]
    return [tensor(name, _SENT[name], rows, (1, len(rows))) for name, rows in values.items()]


def _choice(sampling: Sampling) -> dict[str, list[Any]]:
    """How a token is chosen: one candidate is greedy, 0 is all of them (left out, the engine takes one)."""
    if sampling.logprobs is not None or sampling.logit_bias:
        name = "logit_bias" if sampling.logit_bias else "logprobs"
        raise Unsupported(f"The engine path takes no {name!r}.", param=name)
    values: dict[str, list[Any]] = {"seed": [sampling.seed], "top_k": [1]}
    if sampling.temperature != 0 and sampling.top_p != 0:
        values |= {"temperature": [sampling.temperature], "top_p": [sampling.top_p], "top_k": [0]}
    for name in ("frequency_penalty", "presence_penalty"):
        if penalty := getattr(sampling, name):
            values[name] = [penalty]
    return values


def _guide(constraint: Constraint | None) -> dict[str, list[Any]]:
    """What the engine's grammar is made from; an engine without one refuses the request."""
    if constraint is None:
        return {}
    if constraint.schema is None:
        return {"guided_decoding_guide_type": [b"json"]}
    schema = json.dumps(dict(constraint.schema)).encode()
    return {"guided_decoding_guide_type": [b"json_schema"], "guided_decoding_guide": [schema]}
