"""The zoo's Triton over HTTP: binary tensors out and back, its failures as our errors."""

import asyncio
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import aiohttp
import orjson

from zooserve.errors import BackendFailed, BackendUnavailable, DeadlineExceeded, Overloaded, ServingError
from zooserve.triton.tensors import InferenceAnswer, Tensor, decode_answer, encode_request

__all__ = ["Inference", "RawAnswer", "ZooBackend", "error_of", "zoo_session"]

_HEADER_LENGTH = "Inference-Header-Content-Length"
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


@dataclass(frozen=True)
class RawAnswer:
    """What Triton answered, unread."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class ZooBackend:
    """One Triton server's HTTP endpoint, over a session that keeps its connections."""

    def __init__(self, session: aiohttp.ClientSession, address: str, rng: random.Random) -> None:
        self._session = session
        self._base = f"http://{address}"
        self._rng = rng

    async def infer(self, wanted: Inference) -> InferenceAnswer:
        """Run one inference. Raises Overloaded, DeadlineExceeded, BackendUnavailable or BackendFailed."""
        timeout_us = max(1, int(wanted.timeout_s * 1e6))
        body, header_length = encode_request(
            wanted.inputs, wanted.outputs, request_id=wanted.request_id, timeout_us=timeout_us
        )
        headers = {_HEADER_LENGTH: str(header_length)}
        if wanted.traceparent:
            headers["traceparent"] = wanted.traceparent
        path = f"/v2/models/{wanted.model}/infer"
        answer = await self.send("POST", path, body, headers, wanted.timeout_s + _GRACE_S)
        if answer.status != 200:
            raise error_of(wanted.model, answer)
        try:
            return decode_answer(answer.body, int(answer.headers[_HEADER_LENGTH]))
        except (KeyError, ValueError) as exc:
            raise BackendFailed(f"{wanted.model} answered something that is not an inference: {exc}") from exc

    async def send(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], timeout_s: float
    ) -> RawAnswer:
        """One exchange, tried again once if Triton could not be reached or closed an idle connection."""
        with translated_errors(path):
            try:
                return await self._exchange(method, path, body, headers, timeout_s)
            except (aiohttp.ClientConnectorError, aiohttp.ServerDisconnectedError):
                await asyncio.sleep(self._rng.uniform(*_RETRY_PAUSE_S))
                return await self._exchange(method, path, body, headers, timeout_s)

    async def _exchange(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], timeout_s: float
    ) -> RawAnswer:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        async with self._session.request(
            method, self._base + path, data=body, headers=headers, timeout=timeout
        ) as response:
            return RawAnswer(response.status, response.headers, await response.read())


@contextmanager
def translated_errors(path: str) -> Iterator[None]:
    """aiohttp's failures as ours."""
    try:
        yield
    except TimeoutError as exc:
        raise DeadlineExceeded(f"The zoo did not answer {path} in time.") from exc
    except aiohttp.ClientConnectorError as exc:
        raise BackendUnavailable(f"The zoo's Triton cannot be reached ({exc.os_error.strerror}): is it up?") from exc
    except aiohttp.ClientConnectionError as exc:
        raise BackendUnavailable(f"The zoo's Triton hung up ({exc}): it is restarting or down.") from exc
    except aiohttp.ClientError as exc:
        raise BackendFailed(f"The exchange with the zoo's Triton broke: {exc}") from exc


_UNAVAILABLE = ("unknown model", "has no available versions", "is not ready", "not healthy", "is unloading")


def error_of(model: str, answer: RawAnswer) -> ServingError:
    """Triton's failure as ours. It tells a full queue, an expired request and a dead stub apart by text only."""
    text = _text_of(answer.body)
    if "xceeds maximum queue size" in text:
        return Overloaded(f"The queue of {model} is full; try again in a second.")
    if "timeout expired" in text:
        return DeadlineExceeded(f"The request waited for {model} until its time budget ran out.")
    if any(phrase in text for phrase in _UNAVAILABLE):
        return BackendUnavailable(f"{model} is not available: {text}")
    return BackendFailed(f"{model} failed: {text}")


def _text_of(body: bytes) -> str:
    try:
        return str(orjson.loads(body)["error"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return body[:500].decode(errors="replace")


def zoo_session() -> aiohttp.ClientSession:
    """A session for the zoo: it keeps its connections, and asks for answers that are not compressed.

    Triton gzips for whoever accepts it, as aiohttp does by default: 64 vectors took 3.85 ms instead of 0.57 ms.
    Work in flight is bounded by admission, so the number of connections is not bounded again here.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
        headers={"Accept-Encoding": "identity"},
        skip_auto_headers=("User-Agent", "Accept", "Content-Type"),
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
    )
