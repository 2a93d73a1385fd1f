"""The leaf: TensorRT-LLM's llmapi contract over gRPC streams, one stream per answer.

Only the inputs named here are ever sent, and request ids are ours: the contract's `stop` input is keyed by id
without an owner check, and `lora_path` is a path on the server. Ending the iteration cancels the gRPC call at once.
"""

import codecs
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import InferInput
from tritonclient.grpc import aio as triton
from tritonclient.utils import InferenceServerException

from zooserve.errors import BackendFailed, BackendUnavailable, DeadlineExceeded, Overloaded, ServingError, Unsupported
from zooserve.leaf.contract import INPUTS, parse_number
from zooserve_router.chat.generation import Generation, Piece, Timings, Work

__all__ = ["Leaf", "UnsentText", "inputs_of", "timings_of", "translated_errors"]

# gRPC backs off for up to two minutes by default: a restarted leaf would stay "unreachable" for that long.
_CHANNEL = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1000)]
_NUMPY_TYPES: dict[str, type[np.generic]] = {
    "BOOL": np.bool_,
    "FP32": np.float32,
    "INT32": np.int32,
    "UINT64": np.uint64,
    "BYTES": np.object_,
}
_ENDS = ("stop", "length")
# On a stream Triton's errors carry no code: these are its own words, and the embedded leaf's.
_QUEUE_FULL = ("maximum queue size", "queue is full", "already wait for one of")
_NOT_READY = ("unknown model", "not found", "not ready", "not healthy", "unavailable", "shutting down")


class Leaf:
    """One model on one leaf. Must be made inside a running event loop."""

    def __init__(self, address: str, model: str) -> None:
        self._address = address
        self._model = model
        self._client = triton.InferenceServerClient(address, channel_args=_CHANNEL)

    async def close(self) -> None:
        """Close the channel, and with it every stream that is left."""
        await self._client.close()

    async def generate(self, work: Work, timeout_s: float) -> AsyncGenerator[Piece, None]:
        """The answer piece by piece, each with new text only; the last piece carries a finish reason.

        Closing the generator, or cancelling the task that reads it, cancels the call.
        """
        if not isinstance(work, Generation):
            raise Unsupported(f"{self._model} takes rendered prompts only.")
        with translated_errors(self._model, self._address):
            stream = self._client.stream_infer(_one_request(self._model, work), stream_timeout=timeout_s)
            try:
                async for piece in _pieces(stream):
                    yield piece
                    if piece.finish_reason is not None:
                        return
            finally:
                stream.cancel()
        raise BackendFailed(f"The server behind {self._model} ended an answer without saying why.")


async def _pieces(stream: AsyncIterator[tuple[Any, InferenceServerException | None]]) -> AsyncGenerator[Piece, None]:
    unsent = UnsentText()
    async for result, error in stream:
        if error is not None:
            raise error
        reason = _text(result, "finish_reason")
        is_last = reason != "None"
        if is_last and reason not in _ENDS:
            raise BackendFailed(f"The server ended the answer early: {reason}.")
        text = unsent.advance(_bytes(result, "text_output") or b"", is_last=is_last)
        if is_last:
            yield Piece(text, reason, timings_of(result))
        elif text:
            yield Piece(text)


async def _one_request(model: str, generation: Generation) -> AsyncIterator[dict[str, Any]]:
    yield {"model_name": model, "inputs": inputs_of(generation), "request_id": secrets.token_hex(16)}


def inputs_of(generation: Generation) -> list[Any]:
    """The request's tensors, by the contract's names; nothing else is sent."""
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
        "return_finish_reason": [True],
        "return_stop_reason": [True],
    }
    if sampling.stop:
        values["sampling_param_stop"] = [text.encode() for text in sampling.stop]
    return [_tensor(name, rows) for name, rows in values.items()]


def _tensor(name: str, values: list[Any]) -> Any:
    datatype = INPUTS[name].datatype
    tensor = InferInput(name, [len(values)], datatype)
    tensor.set_data_from_numpy(np.array(values, dtype=_NUMPY_TYPES[datatype]))
    return tensor


class UnsentText:
    """Turns a growing answer, sent whole each time, into what is new of it, never half a character."""

    def __init__(self) -> None:
        self._sent = 0

    def advance(self, whole: bytes, *, is_last: bool) -> str:
        """The text beyond what was returned before; a character still incomplete waits, except at the end."""
        text = codecs.getincrementaldecoder("utf-8")("replace").decode(whole, final=is_last)
        if not is_last:
            # A detokenizer writes U+FFFD for a character whose tokens have not all come yet.
            text = text.rstrip("\ufffd")
        new = text[self._sent :]
        self._sent += len(new)
        return new


def timings_of(result: Any) -> Timings | None:
    """The engine's phases, or None when it sent none."""
    names = ("arrival_time_ns", "first_scheduled_time_ns", "first_token_time_ns", "last_token_time_ns")
    times = [parse_number(_text(result, name)) for name in names]
    if any(time is None for time in times):
        return None
    arrival, scheduled, first, last = (time / 1e9 for time in times if time is not None)
    return Timings(queue_s=scheduled - arrival, prefill_s=first - scheduled, decode_s=last - first)


def _bytes(result: Any, name: str) -> bytes | None:
    values = result.as_numpy(name)
    if values is None or values.size == 0:
        return None
    value = values.flat[0]
    return value if isinstance(value, bytes) else str(value).encode()


def _text(result: Any, name: str) -> str:
    """An output as text; a missing one is "None", which is also how the contract spells a missing value."""
    value = _bytes(result, name)
    return "None" if value is None else value.decode("utf-8", "replace")


@contextmanager
def translated_errors(model: str, address: str) -> Iterator[None]:
    """What gRPC and Triton raise, as our errors."""
    try:
        yield
    except grpc.aio.AioRpcError as exc:
        raise _of_status(exc.code(), exc.details() or "", model, address) from exc
    except InferenceServerException as exc:
        raise _of_message(exc.message() or str(exc), model) from exc


def _of_status(code: grpc.StatusCode, details: str, model: str, address: str) -> ServingError:
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineExceeded("The request's time budget ran out on the leaf.")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return Overloaded(f"The server behind {model} is at its limit; try again in a second.")
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        return BackendUnavailable(f"The server behind {model} at {address} cannot be reached: {details}")
    return _of_message(details, model)


def _of_message(message: str, model: str) -> ServingError:
    lowered = message.lower()
    if any(words in lowered for words in _QUEUE_FULL):
        return Overloaded(f"The server behind {model} has a full queue; try again in a second.")
    if "timeout expired" in lowered:
        return DeadlineExceeded("The request's time budget ran out in the leaf's queue.")
    if any(words in lowered for words in _NOT_READY):
        return BackendUnavailable(f"{model} is not ready on its server: {message}")
    return BackendFailed(f"{model} failed: {message}")
