"""The zoo's Triton over HTTP: binary tensors out and back, its failures as our errors."""

import asyncio
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import orjson
from opentelemetry.trace import Span, SpanKind, format_span_id

from zooserve.errors import (
    BackendFailed,
    BackendUnavailable,
    BadInput,
    DeadlineExceeded,
    FailedStage,
    Overloaded,
    ServingError,
)
from zooserve.triton.tensors import InferenceAnswer, Tensor, decode_answer, encode_request
from zooserve_observability.tracing import NO_TRACE, Attributes, RequestTrace, stage_failed, traceparent
from zooserve_router.backends.traces import TraceSource, TracesSilent
from zooserve_router.backends.wire import ConnectionPool, RawAnswer, Unanswered
from zooserve_router.failures import (
    Failure,
    Suspicion,
    failure_of,
    is_handed_on_wrongly,
    missing_output,
    suspicion_by_trace,
)
from zooserve_router.stages import Ensemble
from zooserve_router.ways import Way, Ways

__all__ = ["HEADER_LENGTH", "Inference", "Relayed", "ZooBackend", "error_of", "is_refusal"]

HEADER_LENGTH = "inference-header-content-length"
# Triton drops what is queued at `timeout`, but a batch that runs is finished: wait that much longer for its answer.
_GRACE_S = 30.0
_INDEX_S = 0.5
_LONGEST_TEXT = 4000
"""Characters of Triton's that are told: a stage may quote all that it was sent."""
# Triton gives up what waits at this part of the budget: what only starts to run later is hardly done in time, and the
# rest is for learning where it waited.
_QUEUE_SHARE = 0.8


@dataclass(frozen=True)
class Inference:
    """One request to one Triton model."""

    model: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[str, ...]
    request_id: str
    timeout_s: float
    trace: RequestTrace = NO_TRACE
    tags: Attributes = field(default_factory=dict)
    """What its span says beside the Triton model."""
    param: str | None = None
    """The caller's field that it carries, where a stage is the first to look at what that holds."""
    is_probe: bool = False
    """Whether it is asked to learn whether the model works: the circuit breaker lets it through."""


@dataclass(frozen=True)
class Relayed:
    """One request to one Triton model, in a body that the caller has encoded."""

    model: str
    headers: Mapping[str, str]
    body: bytes
    timeout_s: float
    trace: RequestTrace = NO_TRACE
    tags: Attributes = field(default_factory=dict)


class ZooBackend:
    """One Triton server's HTTP endpoint.

    Its circuit breaker minds the server alone: a model that fails is told by Triton, which works then, and so it does
    if one hangs while others answer. That model is Readiness' to mind, and must not take the others with it.
    With `traces` a failure that its text does not explain is looked up there, if its request was traced.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        way: Way | None = None,
        grace_s: float = _GRACE_S,
        ensembles: Mapping[str, Ensemble] | None = None,
        traces: TraceSource | None = None,
    ) -> None:
        self._pool = pool
        self._way = way or Ways().way("zoo")
        self._grace_s = grace_s
        self._ensembles = ensembles or {}
        self._traces = traces

    @property
    def is_mistrusted(self) -> bool:
        """Whether its breaker is not closed."""
        return not self._way.breaker.is_closed

    async def infer(self, wanted: Inference) -> InferenceAnswer:
        """Run one inference. Raises Overloaded, DeadlineExceeded, BackendUnavailable or BackendFailed.

        BadInput where a stage refuses what was left to it to look at.
        """
        timeout_us = max(1, int(wanted.timeout_s * _QUEUE_SHARE * 1e6))
        body, header_length = encode_request(
            wanted.inputs, wanted.outputs, request_id=wanted.request_id, timeout_us=timeout_us
        )
        rows = {"zooserve.rows": wanted.inputs[0].shape[0] if wanted.inputs and wanted.inputs[0].shape else 1}
        with self._exchange(wanted.model, wanted.trace, {**wanted.tags, **rows}) as exchange:
            headers = {HEADER_LENGTH: str(header_length), **exchange.headers}
            path = _infer_path(wanted.model)
            answer = await self._sent("POST", path, headers, body, wanted.timeout_s, is_probe=wanted.is_probe)
            if answer.status != 200:
                if wanted.param is not None and is_refusal(answer):
                    reason = _ROW.sub("", _text_of(answer.body), count=1)
                    raise BadInput(f"`{wanted.param}` cannot be read: {reason}.", param=wanted.param)
                raise await self._error(exchange, failure_of(exchange.ensemble, _text_of(answer.body), self._ensembles))
            try:
                decoded = decode_answer(answer.body, int(answer.headers[HEADER_LENGTH]))
            except (KeyError, ValueError) as exc:
                raise BackendFailed(f"{wanted.model} answered something that is not an inference: {exc}") from exc
            for output in wanted.outputs:
                if output not in decoded.outputs:
                    raise await self._error(exchange, missing_output(exchange.ensemble, output))
            return decoded

    async def relay(self, wanted: Relayed) -> RawAnswer:
        """Triton's own answer to a body as it is, also where it refuses that body. Raises what `infer` does."""
        with self._exchange(wanted.model, wanted.trace, wanted.tags) as exchange:
            headers = {**wanted.headers, **exchange.headers}
            answer = await self.send("POST", _infer_path(wanted.model), headers, wanted.body, wanted.timeout_s)
            if answer.status == 200 or is_refusal(answer):
                return answer
            raise await self._error(exchange, failure_of(exchange.ensemble, _text_of(answer.body), self._ensembles))

    async def send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, timeout_s: float
    ) -> RawAnswer:
        """One exchange; a second try if Triton could not be reached or had closed a kept connection."""
        return await self._sent(method, path, headers, body, timeout_s)

    async def _sent(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        timeout_s: float,
        *,
        is_probe: bool = False,
    ) -> RawAnswer:
        with translated_errors(path), self._way.breaker.attempt(is_probe=is_probe) as attempt:
            try:
                async with asyncio.timeout(timeout_s + self._grace_s):
                    answer = await self._way.tried(
                        partial(self._pool.exchange, method, path, headers, body), _nothing_came_back
                    )
            except OSError as fault:
                if isinstance(fault, TimeoutError) and fault.errno is None:  # ours, and none of a connection
                    attempt.fell_silent(timeout_s + self._grace_s)
                else:
                    attempt.failed(f"{type(fault).__name__}: {fault.strerror or fault}")
                raise
            if answer.status >= 500 and not _is_tritons(answer):
                attempt.failed(f"it answered {answer.status}, and not as Triton does")
            else:
                attempt.answered()
            return answer

    @contextmanager
    def _exchange(self, model: str, trace: RequestTrace, tags: Attributes) -> Iterator["_Exchange"]:
        """One inference as a span of its request's trace, below which Triton puts its own."""
        ensemble = self._ensembles.get(model) or Ensemble.single(model)
        with trace.span("infer", {"triton.model_name": model, **tags}, kind=SpanKind.CLIENT) as span:
            try:
                yield _Exchange(ensemble, trace, span)
            except ServingError as error:
                if error.failed is not None:
                    stage_failed(span, error.failed)
                raise

    async def _error(self, exchange: "_Exchange", failure: Failure) -> ServingError:
        """The failure as our error, after asking whoever may know what its text does not tell."""
        if failure.stage is None and failure.reason == "unavailable":
            failure = await self._by_index(exchange.ensemble, failure)
        elif failure.stage is None:
            failure = failure.by(await self._by_trace(exchange, failure))
        return error_of(failure)

    async def _by_trace(self, exchange: "_Exchange", failure: Failure) -> Suspicion:
        if self._traces is None:
            return Suspicion((), f"{failure.doubt}, and there is no trace log")
        if not exchange.span.is_recording():
            return Suspicion((), f"{failure.doubt}, and this request was not traced")
        answered_ns = time.time_ns()
        name, began_ns = exchange.ensemble.name, exchange.began_ns
        try:
            spans = await self._traces.spans_of(exchange.trace.trace_id, exchange.span_id, name, began_ns)
        except TracesSilent as silence:
            return Suspicion((), f"{failure.doubt}, and {silence}")
        return suspicion_by_trace(exchange.ensemble, failure.reason, spans, answered_ns)

    async def _by_index(self, ensemble: Ensemble, failure: Failure) -> Failure:
        """An ensemble goes when one of its stages does: which one, and why, stands in Triton's index."""
        try:
            async with asyncio.timeout(_INDEX_S):  # without the grace that an inference gets
                answer = await self.send("POST", "/v2/repository/index", {}, b"{}", _INDEX_S)
            entries = {entry["name"]: entry for entry in orjson.loads(answer.body)}
        except (ServingError, TimeoutError, ValueError, KeyError, TypeError):
            return failure
        gone = [step.stage for step in ensemble.steps if entries.get(step.stage.model, {}).get("state") != "READY"]
        if len(gone) != 1:
            return failure.by(Suspicion(tuple(gone), f"{len(gone)} of its stages are not loaded"))
        reason = entries.get(gone[0].model, {}).get("reason") or "it is not in the repository"
        return Failure(failure.ensemble, failure.reason, f"{failure.text} ({reason})", gone[0])


@dataclass(frozen=True)
class _Exchange:
    """One inference on its way: what is asked, as which span."""

    ensemble: Ensemble
    trace: RequestTrace
    span: Span
    began_ns: int = field(default_factory=time.time_ns)

    @property
    def span_id(self) -> str:
        """16 hexadecimal digits."""
        return format_span_id(self.span.get_span_context().span_id)

    @property
    def headers(self) -> Mapping[str, str]:
        """What makes Triton's spans children of this one; nothing where nothing is traced."""
        context = traceparent(self.span)
        return {} if context is None else {"traceparent": context}


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


# Triton answers 400 to these as well. Only from the beginning of its text: later on it quotes what the caller sent.
_MODEL_MISSING = re.compile(
    r"(in ensemble '[\w.-]+', )?(Request for unknown model|Model '?[\w.-]+'? is not ready|Stub process)", re.IGNORECASE
)


def is_refusal(answer: RawAnswer) -> bool:
    """Whether Triton refuses what the caller sent: no 4xx that says the model is gone, or blames one for another."""
    text = _text_of(answer.body)
    return 400 <= answer.status < 500 and _MODEL_MISSING.match(text) is None and not is_handed_on_wrongly(text)


def error_of(failure: Failure) -> ServingError:
    """A failure as our error, which says where it happened."""
    stage = failure.stage
    failed = FailedStage(stage.model if stage else "", stage.version if stage else "", failure.reason)
    if failure.reason == "queue_full":
        return Overloaded(f"{failure.ensemble}: the queue of {failure.place} is full; try again.", failed=failed)
    if failure.reason == "queue_timeout":
        return DeadlineExceeded(
            f"{failure.ensemble}: the request waited for {failure.place} until its time budget ran out.", failed=failed
        )
    if failure.reason in ("unavailable", "stub_dead"):
        return BackendUnavailable(
            f"{failure.ensemble} is not available because of {failure.place}: {failure.text}", failed=failed
        )
    return BackendFailed(f"{failure.ensemble} failed in {failure.place}: {failure.text}", failed=failed)


def _nothing_came_back(fault: Exception) -> bool:
    return isinstance(fault, ConnectionRefusedError | Unanswered)


def _is_tritons(answer: RawAnswer) -> bool:
    """Whether an error is told as Triton tells it, rather than by somebody in its place."""
    try:
        return "error" in orjson.loads(answer.body)
    except (orjson.JSONDecodeError, TypeError):
        return False


def _infer_path(model: str) -> str:
    return f"/v2/models/{model}/infer"


def _text_of(body: bytes) -> str:
    try:
        return str(orjson.loads(body)["error"])[:_LONGEST_TEXT]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return body[:500].decode(errors="replace")
