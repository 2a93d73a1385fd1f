"""Triton's vLLM backend: a prompt, its sampling parameters as one JSON text, an answer that comes in new parts.

Its traps: sampling parameters that vLLM refuses are only logged, and the request fails with a message about `None`,
so everything is checked before; names of JSON objects are strings, so `logit_bias` cannot be said; a client that
leaves is seen with the next token. Read in the backend's source (docs/leaves.md names it).
"""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from zooserve.errors import BackendFailed, Unsupported
from zooserve_router.backends.triton_stream import TritonStream, integer_of, tensor, text_of
from zooserve_router.chat.generation import Constraint, Generation, Piece, Sampling, TokenLogprob, Usage, Work

__all__ = ["Vllm", "inputs_of", "sampling_parameters"]

_ENDS = ("stop", "length")
_LEAST_LOGPROB = -9999.0
"""What OpenAI writes for a token that is next to impossible; JSON has no infinity."""
_SENT: Mapping[str, str] = MappingProxyType(
    {
        "text_input": "BYTES",
        "stream": "BOOL",
        "sampling_parameters": "BYTES",
        "exclude_input_in_output": "BOOL",
        "return_finish_reason": "BOOL",
        "return_num_input_tokens": "BOOL",
        "return_num_output_tokens": "BOOL",
        "return_logprobs": "BOOL",
    }
)
"""The inputs that are ever sent; `image` and `embedding_request` never are."""


class Vllm:
    """One model on one Triton with the vLLM backend. Must be made inside a running event loop."""

    def __init__(self, address: str, model: str) -> None:
        self._stream = TritonStream(address, model)

    async def close(self) -> None:
        """Close the channel, and with it every stream that is left."""
        await self._stream.close()

    async def generate(self, work: Work, timeout_s: float) -> AsyncGenerator[Piece, None]:
        """The answer piece by piece; the last one has a finish reason and the engine's own counts.

        Closing the generator, or cancelling the task that reads it, cancels the call.
        """
        if not isinstance(work, Generation):
            raise Unsupported(f"{self._stream.model} takes rendered prompts only.")
        reader = _Reader(work.sampling.logprobs)
        async with aclosing(self._stream.responses(inputs_of(work), timeout_s)) as responses:
            async for result in responses:
                piece = reader.piece(result)
                if piece != Piece():
                    yield piece
                if piece.finish_reason is not None:
                    return
        raise BackendFailed(f"The server behind {self._stream.model} ended an answer without saying why.")


@dataclass
class _Reader:
    """Reads one answer's responses in their order."""

    alternatives: int | None
    completion_tokens: int = 0

    def piece(self, result: Any) -> Piece:
        """What is new in a response."""
        self.completion_tokens += integer_of(result, "num_output_tokens") or 0
        text = text_of(result, "text_output") or ""
        logprobs = self._logprobs(result)
        reason = text_of(result, "finish_reason") or "None"
        if reason == "None":
            return Piece(text, logprobs=logprobs)
        if reason not in _ENDS:
            raise BackendFailed(f"The server ended the answer early: {reason}.")
        usage = Usage(integer_of(result, "num_input_tokens") or 0, self.completion_tokens)
        return Piece(text, reason, logprobs=logprobs, usage=usage)

    def _logprobs(self, result: Any) -> tuple[TokenLogprob, ...]:
        if self.alternatives is None:
            return ()
        tokens = json.loads(text_of(result, "logprobs") or "null") or ()
        return tuple(_token(list(token.values()), self.alternatives) for token in tokens)


def _token(candidates: list[Mapping[str, Any]], alternatives: int) -> TokenLogprob:
    """One position: vLLM puts the token that was chosen first, whatever its rank, then the likeliest ones."""
    (token, logprob), *_ = read = [(str(each["decoded_token"] or ""), _finite(each["logprob"])) for each in candidates]
    ranked = sorted(zip(candidates, read, strict=True), key=lambda pair: int(pair[0]["rank"]))
    return TokenLogprob(token, logprob, tuple(pair for _, pair in ranked[:alternatives]))


def _finite(logprob: float) -> float:
    return max(float(logprob), _LEAST_LOGPROB)


def inputs_of(generation: Generation) -> list[Any]:
    """The request's tensors, by the contract's names; nothing else is sent."""
    values: dict[str, Any] = {
        "text_input": generation.prompt.encode(),
        "stream": True,
        "sampling_parameters": json.dumps(sampling_parameters(generation)).encode(),
        "exclude_input_in_output": True,
        "return_finish_reason": True,
        "return_num_input_tokens": True,
        "return_num_output_tokens": True,
        "return_logprobs": generation.sampling.logprobs is not None,
    }
    return [tensor(name, _SENT[name], [value]) for name, value in values.items()]


def sampling_parameters(generation: Generation) -> dict[str, Any]:
    """What the JSON says, in the names of vLLM's SamplingParams. Raises Unsupported for what it cannot say."""
    sampling = generation.sampling
    if sampling.logit_bias:
        raise Unsupported(
            "Triton's vLLM backend takes no 'logit_bias': it reads token ids as texts.", param="logit_bias"
        )
    fields: dict[str, Any] = {"max_tokens": sampling.max_tokens, "seed": sampling.seed, **_choice(sampling)}
    if sampling.stop:
        fields["stop"] = list(sampling.stop)
    if sampling.logprobs is not None:
        fields["logprobs"] = sampling.logprobs
    if generation.lora is not None:
        fields["lora_name"] = generation.lora
    if generation.constraint is not None:
        # A JSON text inside the JSON: the backend parses it once more.
        fields["structured_outputs"] = json.dumps(_structure(generation.constraint))
    return fields


def _choice(sampling: Sampling) -> dict[str, float]:
    """How a token is chosen; a `top_p` of 0 is greedy, which vLLM wants said as a temperature."""
    penalties = {"frequency_penalty": sampling.frequency_penalty, "presence_penalty": sampling.presence_penalty}
    if sampling.temperature == 0 or sampling.top_p == 0:
        return {"temperature": 0.0, **penalties}
    return {"temperature": sampling.temperature, "top_p": sampling.top_p, **penalties}


def _structure(constraint: Constraint) -> dict[str, Any]:
    return {"json_object": True} if constraint.schema is None else {"json": dict(constraint.schema)}
