"""Stage: texts of any length to one vector each, by calling the encoder from inside Triton (business logic scripting).

Not an ensemble, because the number of windows, and so of calls, depends on the text
(docs/decisions/0012-long-texts-are-a-mean-of-windows.md).
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils

from zooserve_ensembles.buckets import BUCKETS, padded
from zooserve_ensembles.long_texts import CHARACTERS_PER_TOKEN, calls_cut, mean_vector, windows
from zooserve_ensembles.stages.stage import Arrays, Outcome, Stage
from zooserve_ensembles.texts import decoded

__all__ = ["TritonPythonModel"]

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class CallFailed(Exception):
    """The work on a request ended early; `code` is Triton's word for why."""

    def __init__(self, reason: str, code: Any) -> None:
        super().__init__(reason)
        self.code = code


@dataclass
class Work:
    """One request on its way: its windows, and their vectors as they come in."""

    request: Any
    began: float
    rows: list[list[int]] = field(default_factory=list)
    """The windows of all its texts, one after the other, with the special tokens around each."""
    owners: list[int] = field(default_factory=list)
    """The text that each window belongs to."""
    tokens: list[int] = field(default_factory=list)
    """The tokens of each text, special ones counted once."""
    vectors: dict[int, npt.NDArray[np.float32]] = field(default_factory=dict)
    over: bool = False
    """A call failed: none of the others needs to start."""

    def timeout_us(self) -> int:
        """What is left of the request's timeout; 0 where it has none. Raises CallFailed when nothing is."""
        allowed = int(self.request.timeout())
        if not allowed:
            return 0
        left = allowed - int((time.monotonic() - self.began) * 1e6)
        if left <= 0:
            raise CallFailed("Request timeout expired between two calls", pb_utils.TritonError.UNAVAILABLE)
        return left


class TritonPythonModel(Stage):
    """`text` to `embedding`, `tokens` and `chunks`.

    A batch's calls to the encoder share a few turns, and a request is answered as soon as its own are through. The
    model is not decoupled and calls none that is, so no response is ever left unread; and it calls a model that calls
    nobody, so no instance can wait for itself.
    """

    def open(self, folder: Path, parameters: Mapping[str, str]) -> None:
        """Load the tokenizer, and read which encoder to call and how much at once."""
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._frame = self._tokenizer.encode("").ids
        self._encoder, self._version = parameters["encoder"], int(parameters["encoder_version"])
        self._max_tokens = int(parameters["max_tokens"])
        self._call_rows, self._calls_at_once = int(parameters["call_rows"]), int(parameters["calls_at_once"])

    async def execute(self, requests: Sequence[Any]) -> list[None]:  # type: ignore[override]
        """Triton runs the coroutine to its end, and takes no further batch until then."""
        turns = asyncio.Semaphore(self._calls_at_once)
        await asyncio.gather(*(self._answer(request, turns) for request in requests))
        return [None for _ in requests]

    def compute(self, inputs: Arrays) -> Arrays:
        """Not this stage's way: its answers are awaited."""
        raise NotImplementedError

    async def _answer(self, request: Any, turns: asyncio.Semaphore) -> None:
        try:
            outcome: Outcome = await self._embedded(Work(request, time.monotonic()), turns)
        except Exception as exc:  # whatever it is, it must not take the batch's other requests down
            outcome = exc
        request.get_response_sender().send(self._response(self._checked(outcome)), flags=FINAL)

    def _response(self, outcome: Outcome) -> Any:
        if isinstance(outcome, CallFailed):
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"{self._name}: {outcome}", outcome.code))
        return super()._response(outcome)

    async def _embedded(self, work: Work, turns: asyncio.Semaphore) -> Arrays:
        texts = decoded(pb_utils.get_input_tensor_by_name(work.request, "text").as_numpy().ravel())
        for place, text in enumerate(texts):
            self._cut(work, place, text)
        calls = calls_cut([len(row) for row in work.rows], BUCKETS, self._call_rows)
        done = await asyncio.gather(*(self._call(work, places, turns) for places in calls), return_exceptions=True)
        for outcome in done:
            if isinstance(outcome, BaseException):
                raise outcome
        owners = np.array(work.owners)
        vectors = [self._mean(work, np.flatnonzero(owners == place)) for place in range(len(texts))]
        return {
            "embedding": np.stack(vectors),
            "tokens": np.array(work.tokens, np.int32)[:, None],
            "chunks": np.bincount(owners).astype(np.int32)[:, None],
        }

    def _cut(self, work: Work, place: int, text: str) -> None:
        characters = self._max_tokens * CHARACTERS_PER_TOKEN
        if len(text) > characters:
            raise ValueError(f"text {place} has {len(text)} characters; at most {characters} are read")
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        tokens = len(ids) + len(self._frame)
        if tokens > self._max_tokens:
            raise ValueError(f"text {place} has {tokens} tokens; at most {self._max_tokens} are read")
        cut = windows(ids, BUCKETS[-1] - len(self._frame))
        work.rows += [[self._frame[0], *window, *self._frame[1:]] for window in cut]
        work.owners += [place] * len(cut)
        work.tokens.append(tokens)

    async def _call(self, work: Work, places: Sequence[int], turns: asyncio.Semaphore) -> None:
        async with turns:
            if work.over:
                return
            try:
                work.vectors.update(zip(places, await self._encoded(work, places), strict=True))
            except Exception:
                work.over = True
                raise

    async def _encoded(self, work: Work, places: Sequence[int]) -> npt.NDArray[np.float32]:
        if work.request.is_cancelled():
            raise CallFailed("the caller left between two calls", pb_utils.TritonError.CANCELLED)
        ids, mask, _ = padded([work.rows[place] for place in places])
        call = pb_utils.InferenceRequest(
            request_id=work.request.request_id(),
            model_name=self._encoder,
            model_version=self._version,
            inputs=[pb_utils.Tensor("input_ids", ids), pb_utils.Tensor("attention_mask", mask)],
            requested_output_names=["sentence_embedding"],
            preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0),
            timeout=work.timeout_us(),
            trace=work.request.trace(),
        )
        try:
            answer = await call.async_exec()
        except Exception as exc:  # pb_utils raises its own kind where the encoder is not there to be asked
            raise self._failed(str(exc), pb_utils.TritonError.UNAVAILABLE) from exc
        if answer.has_error():
            raise self._failed(answer.error().message(), answer.error().code())
        return np.asarray(pb_utils.get_output_tensor_by_name(answer, "sentence_embedding").as_numpy())

    def _failed(self, reason: str, code: Any) -> CallFailed:
        named = f"{self._encoder} version {self._version}: "
        return CallFailed(reason if reason.startswith(named) else named + reason, code)

    def _mean(self, work: Work, places: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        own = [len(work.rows[place]) - len(self._frame) for place in places]
        return mean_vector(np.stack([work.vectors[place] for place in places]), own)
