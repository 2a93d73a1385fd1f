"""The leaf: TensorRT-LLM's llmapi contract over gRPC streams, one stream per answer.

Only the inputs named here are ever sent, and request ids are ours: the contract's `stop` input is keyed by id
without an owner check, and `lora_path` is a path on the server. Ending the iteration cancels the gRPC call at once.
"""

import math
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import Any

from zooserve.catalogue import Adapter
from zooserve.errors import BackendFailed, Unsupported
from zooserve.leaf.contract import INPUTS, parse_number
from zooserve_router.backends.triton_stream import TritonStream, UnsentText, bytes_of, tensor, translated_errors
from zooserve_router.chat.generation import EngineReport, Generation, Piece, Timings, Work

__all__ = ["Leaf", "UnsentText", "inputs_of", "report_of", "timings_of", "translated_errors"]

_ENDS = ("stop", "length")


class Leaf:
    """One model on one leaf. Must be made inside a running event loop."""

    def __init__(self, address: str, model: str, adapters: Mapping[str, Adapter] = MappingProxyType({})) -> None:
        self._stream = TritonStream(address, model)
        self._adapters = adapters

    async def close(self) -> None:
        """Close the channel, and with it every stream that is left."""
        await self._stream.close()

    async def generate(self, work: Work, timeout_s: float) -> AsyncGenerator[Piece, None]:
        """The answer piece by piece, each with new text only; the last piece carries a finish reason.

        Closing the generator, or cancelling the task that reads it, cancels the call.
        """
        if not isinstance(work, Generation):
            raise Unsupported(f"{self._stream.model} takes rendered prompts only.")
        _refuse_what_the_contract_lacks(work, self._stream.model)
        unsent = UnsentText()
        async with aclosing(self._stream.responses(inputs_of(work, self._adapters), timeout_s)) as responses:
            async for result in responses:
                piece = _piece(result, unsent)
                if piece.text or piece.finish_reason is not None:
                    yield piece
                if piece.finish_reason is not None:
                    return
        raise BackendFailed(f"The server behind {self._stream.model} ended an answer without saying why.")


def _piece(result: Any, unsent: UnsentText) -> Piece:
    reason = _text(result, "finish_reason")
    is_last = reason != "None"
    if is_last and reason not in _ENDS:
        raise BackendFailed(f"The server ended the answer early: {reason}.")
    text = unsent.advance(bytes_of(result, "text_output") or b"", is_last=is_last)
    return Piece(text, reason, timings_of(result), report=report_of(result)) if is_last else Piece(text)


def _refuse_what_the_contract_lacks(generation: Generation, model: str) -> None:
    """The catalogue keeps such requests away; one that comes all the same is not answered as if it had not asked."""
    lacking = {
        "response_format": generation.constraint is not None,
        "logprobs": generation.sampling.logprobs is not None,
        "logit_bias": bool(generation.sampling.logit_bias),
    }
    for param, is_asked in lacking.items():
        if is_asked:
            raise Unsupported(f"Unsupported parameter: the contract of {model} has no {param}.", param=param)


def inputs_of(generation: Generation, adapters: Mapping[str, Adapter] = MappingProxyType({})) -> list[Any]:
    """The request's tensors, by the contract's names; nothing else is sent.

    Raises Unsupported for an adapter that the catalogue does not declare.
    """
    sampling = generation.sampling
    values: dict[str, list[Any]] = {
        "text_input": [generation.prompt.encode()],
        "streaming": [True],
        "sampling_param_max_tokens": [sampling.max_tokens],
        "sampling_param_temperature": [sampling.temperature],
        "sampling_param_top_p": [sampling.top_p],
        "sampling_param_frequency_penalty": [sampling.frequency_penalty],
        "sampling_param_presence_penalty": [sampling.presence_penalty],
        "sampling_param_seed": [sampling.seed],
        # Left out, the contract echoes the prompt in front of the answer.
        "sampling_param_exclude_input_from_output": [True],
        "sampling_param_return_perf_metrics": [True],
        # Its fellow `return_stop_reason` is not asked for: nobody reads it, and every token would carry it.
        "return_finish_reason": [True],
    }
    if sampling.stop:
        values["sampling_param_stop"] = [text.encode() for text in sampling.stop]
    if generation.lora is not None:
        values |= _adapter(generation.lora, adapters)
    return [tensor(name, INPUTS[name].datatype, rows) for name, rows in values.items()]


def _adapter(name: str, adapters: Mapping[str, Adapter]) -> dict[str, list[Any]]:
    """An adapter as the catalogue has it: its folder is on the server's disk, so that no caller may name one."""
    if name not in adapters:
        raise Unsupported(f"The catalogue declares no adapter {name!r} for this model.", param="model")
    adapter = adapters[name]
    return {
        "lora_id": [adapter.id],
        "lora_name": [name.encode()],
        "lora_path": [adapter.path.encode()],
        "lora_ckpt_source": [adapter.source.encode()],
    }


def timings_of(result: Any) -> Timings | None:
    """The engine's phases; None when it sent none, or moments that cannot have followed each other.

    The embedded leaf says 0 of a token that never came.
    """
    names = ("arrival_time_ns", "first_scheduled_time_ns", "first_token_time_ns", "last_token_time_ns")
    moments = [moment for name in names if (moment := _number(result, name)) is not None]
    if len(moments) < len(names) or moments != sorted(moments):
        return None
    arrival, scheduled, first, last = (moment / 1e9 for moment in moments)
    return Timings(queue_s=scheduled - arrival, prefill_s=first - scheduled, decode_s=last - first)


def report_of(result: Any) -> EngineReport | None:
    """What the engine says of its KV cache and draft tokens; None when it says nothing of its cache."""
    reused, missed = _number(result, "kv_cache_reused_block"), _number(result, "kv_cache_missed_block")
    if reused is None or missed is None:
        return None
    drafted = int(_number(result, "total_draft_tokens") or 0)
    return EngineReport(
        reused_blocks=int(reused),
        missed_blocks=int(missed),
        draft_tokens=drafted,
        accepted_draft_tokens=min(drafted, int(_number(result, "total_accepted_draft_tokens") or 0)),
        acceptance_rate=_number(result, "acceptance_rate") if drafted else None,
    )


def _number(result: Any, name: str) -> float | None:
    """A figure, which the contract writes as text; one that is no number must not cost the answer beside it."""
    try:
        number = parse_number(_text(result, name))
    except ValueError:
        return None
    return number if number is not None and math.isfinite(number) else None


def _text(result: Any, name: str) -> str:
    """An output as text; a missing one is "None", which is also how the contract spells a missing value."""
    value = bytes_of(result, name)
    return "None" if value is None else value.decode("utf-8", "replace")
