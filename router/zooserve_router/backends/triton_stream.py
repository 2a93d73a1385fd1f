"""A decoupled Triton model asked over gRPC: one stream per answer, left by closing it; its errors as ours.

What the contracts of chat models share: `leaf` (llmapi), `vllm` and `engine_path` differ in tensors alone.
"""

import codecs
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import InferInput
from tritonclient.grpc import aio as triton
from tritonclient.utils import InferenceServerException

from zooserve.errors import BackendFailed, BackendUnavailable, DeadlineExceeded, Overloaded, ServingError
from zooserve.leaf.contract import ERROR_PREFIX

__all__ = ["TritonStream", "UnsentText", "bytes_of", "integer_of", "tensor", "text_of", "translated_errors"]

# gRPC backs off for up to two minutes by default: a restarted server would stay "unreachable" for that long. And it
# gives a host that says nothing 20 s to connect (measured), in which another one could have answered.
_CHANNEL = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # It would ask a proxy of the environment for a leaf on this very machine.
    ("grpc.enable_http_proxy", 0),
]
_NUMPY_TYPES: dict[str, type[np.generic]] = {
    "BOOL": np.bool_,
    "FP32": np.float32,
    "INT32": np.int32,
    "UINT64": np.uint64,
    "BYTES": np.object_,
}
_LENGTH = 4
"""Bytes before each text of an output, which say how long it is."""
# On a stream Triton's errors carry no code: these are its own words, and the embedded leaf's.
_QUEUE_FULL = ("maximum queue size", "queue is full", "already wait for one of")
_OF_THE_REQUEST = (ERROR_PREFIX, "Error generating stream: ")
"""How a model begins that refuses a request by itself, llmapi's and vLLM's: what follows may quote the request."""
_NOT_READY = ("unknown model", "not found", "not ready", "not healthy", "unavailable", "shutting down")


class TritonStream:
    """One model on one Triton. Must be made inside a running event loop."""

    def __init__(self, address: str, model: str) -> None:
        self.address = address
        self.model = model
        self._client = triton.InferenceServerClient(address, channel_args=_CHANNEL)

    async def close(self) -> None:
        """Close the channel, and with it every stream that is left."""
        await self._client.close()

    async def configuration(self, timeout_s: float) -> Any:
        """The model's configuration (a ModelConfig message), as its Triton completed it."""
        with translated_errors(self.model, self.address):
            answer = await self._client.get_model_config(self.model, client_timeout=timeout_s)
        return answer.config

    async def responses(self, inputs: Sequence[Any], timeout_s: float) -> AsyncGenerator[Any, None]:
        """What the model sends for one request, response by response; closing this cancels the call at once."""
        with translated_errors(self.model, self.address):
            call = self._client.stream_infer(_one_request(self.model, inputs), stream_timeout=timeout_s)
            try:
                async for result, error in call:
                    if error is not None:
                        raise error
                    yield result
            finally:
                call.cancel()


async def _one_request(model: str, inputs: Sequence[Any]) -> AsyncIterator[dict[str, Any]]:
    # The id is ours and unguessable: some contracts let whoever knows a request's id end it.
    yield {"model_name": model, "inputs": list(inputs), "request_id": secrets.token_hex(16)}


def tensor(name: str, datatype: str, values: Sequence[Any], shape: Sequence[int] | None = None) -> Any:
    """An input tensor, one-dimensional unless a shape is given."""
    made = InferInput(name, list(shape or (len(values),)), datatype)
    made.set_data_from_numpy(np.array(values, dtype=_NUMPY_TYPES[datatype]).reshape(made.shape()))
    return made


def bytes_of(result: Any, name: str) -> bytes | None:
    """The first value of an output, text as it is; None where the response has none.

    Text is read where it lies: by way of numpy it takes 12 us, which a stream pays for every token and output.
    """
    response = result.get_response()
    for output, raw in zip(response.outputs, response.raw_output_contents, strict=False):
        if output.name == name and output.datatype == "BYTES":
            return raw[_LENGTH : _LENGTH + int.from_bytes(raw[:_LENGTH], "little")] if raw else None
    values = result.as_numpy(name)
    return None if values is None or values.size == 0 else str(values.flat[0]).encode()


def text_of(result: Any, name: str) -> str | None:
    """The first value of a text output, as text; None where the response has none."""
    value = bytes_of(result, name)
    return None if value is None else value.decode("utf-8", "replace")


def integer_of(result: Any, name: str) -> int | None:
    """The sum of an integer output: contracts count per sequence, and one sequence is asked for."""
    values = result.as_numpy(name)
    return None if values is None or values.size == 0 else int(values.sum())


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


@contextmanager
def translated_errors(model: str, address: str) -> Iterator[None]:
    """What gRPC and Triton raise, as our errors."""
    try:
        yield
    except grpc.aio.AioRpcError as exc:
        raise _of_status(exc.code(), exc.details() or "", model, address) from exc
    except InferenceServerException as exc:
        message = exc.message() or str(exc)
        code = _code_of(exc)
        raise (_of_status(code, message, model, address) if code else _of_message(message, model)) from exc


def _code_of(exc: InferenceServerException) -> grpc.StatusCode | None:
    """What a call that is no stream failed with, which tritonclient keeps as a text: "StatusCode.UNAVAILABLE"."""
    return getattr(grpc.StatusCode, str(exc.status()).removeprefix("StatusCode."), None)


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
    # A model that refuses a request by itself is there, whatever it says is not.
    not_ready = ("shutting down",) if message.startswith(_OF_THE_REQUEST) else _NOT_READY
    if any(words in lowered for words in not_ready):
        return BackendUnavailable(f"{model} is not ready on its server: {message}")
    return BackendFailed(f"{model} failed: {message}")
