"""The zoo's Triton over HTTP: binary tensors out and back, its failures as our errors."""

import asyncio
import random
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import orjson

from zooserve.errors import BackendFailed, BackendUnavailable, BadInput, DeadlineExceeded, Overloaded, ServingError
from zooserve.triton.tensors import InferenceAnswer, Tensor, decode_answer, encode_request
from zooserve_router.backends.wire import ConnectionPool, RawAnswer, Unanswered

__all__ = ["HEADER_LENGTH", "Inference", "ZooBackend", "error_of", "is_refusal"]

HEADER_LENGTH = "inference-header-content-length"
_RETRY_PAUSE_S = (0.01, 0.05)
# Triton drops what is queued at `timeout`, but a batch that runs is finished: wait that much longer for its answer.
_GRACE_S = 30.0


@dataclass(frozen=True)
class Inference:
    """One request to one Triton model."""

    model: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[str, ...]
    request_id: str
    timeout_s: float
    traceparent: str | None = None
    param: str | None = None
    """The caller's field that it carries, where a stage is the first to look at what that holds."""


class ZooBackend:
    """One Triton server's HTTP endpoint."""

    def __init__(self, pool: ConnectionPool, rng: random.Random, grace_s: float = _GRACE_S) -> None:
        self._pool = pool
        self._rng = rng
        self._grace_s = grace_s

    async def infer(self, wanted: Inference) -> InferenceAnswer:
        """Run one inference. Raises Overloaded, DeadlineExceeded, BackendUnavailable or BackendFailed.

        BadInput where a stage refuses what was left to it to look at.
        """
        timeout_us = max(1, int(wanted.timeout_s * 1e6))
        body, header_length = encode_request(
            wanted.inputs, wanted.outputs, request_id=wanted.request_id, timeout_us=timeout_us
        )
        headers = {HEADER_LENGTH: str(header_length)}
        if wanted.traceparent:
            headers["traceparent"] = wanted.traceparent
        answer = await self.send("POST", f"/v2/models/{wanted.model}/infer", headers, body, wanted.timeout_s)
        if answer.status != 200:
            if wanted.param is not None and is_refusal(answer):
                reason = _ROW.sub("", _text_of(answer.body), count=1)
                raise BadInput(f"`{wanted.param}` cannot be read: {reason}.", param=wanted.param)
            raise error_of(wanted.model, answer)
        try:
            return decode_answer(answer.body, int(answer.headers[HEADER_LENGTH]))
        except (KeyError, ValueError) as exc:
            raise BackendFailed(f"{wanted.model} answered something that is not an inference: {exc}") from exc

    async def send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, timeout_s: float
    ) -> RawAnswer:
        """One exchange; a second try if Triton could not be reached or had closed a kept connection."""
        with translated_errors(path):
            async with asyncio.timeout(timeout_s + self._grace_s):
                try:
                    return await self._pool.exchange(method, path, headers, body)
                except (ConnectionRefusedError, Unanswered):
                    await asyncio.sleep(self._rng.uniform(*_RETRY_PAUSE_S))
                    return await self._pool.exchange(method, path, headers, body)


@contextmanager
def translated_errors(path: str) -> Iterator[None]:
    """What a connection can do to us, as our errors."""
    try:
        yield
    except TimeoutError as exc:
        raise DeadlineExceeded(f"The zoo did not answer {path} in time.") from exc
    except OSError as exc:
        raise BackendUnavailable(f"The zoo's Triton cannot be reached ({exc.strerror or exc}): is it up?") from exc


# What stands before a stage's own words on the row that it refuses.
_ROW = re.compile(r".*?: (?:image|file) \d+: ")
_UNAVAILABLE = ("unknown model", "has no available versions", "is not ready", "not healthy", "is unloading")


# Triton answers 400 to these as well. Only from the beginning of its text: later on it quotes what the caller sent.
_MODEL_MISSING = re.compile(
    r"(in ensemble '[\w.-]+', )?(Request for unknown model|Model '?[\w.-]+'? is not ready|Stub process)", re.IGNORECASE
)


def is_refusal(answer: RawAnswer) -> bool:
    """Whether Triton refuses what the caller sent, and does not say by a 4xx that the model is gone."""
    return 400 <= answer.status < 500 and _MODEL_MISSING.match(_text_of(answer.body)) is None


def error_of(model: str, answer: RawAnswer) -> ServingError:
    """Triton's failure as ours. It tells a full queue, an expired request and a dead stub apart by text only."""
    text = _text_of(answer.body)
    if "xceeds maximum queue size" in text:
        return Overloaded(f"The queue of {model} is full; try again in a second.")
    if "timeout expired" in text:
        return DeadlineExceeded(f"The request waited for {model} until its time budget ran out.")
    if any(phrase in text for phrase in _UNAVAILABLE) or _MODEL_MISSING.match(text):
        return BackendUnavailable(f"{model} is not available: {text}")
    return BackendFailed(f"{model} failed: {text}")


def _text_of(body: bytes) -> str:
    try:
        return str(orjson.loads(body)["error"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return body[:500].decode(errors="replace")
