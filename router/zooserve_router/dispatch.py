"""The decision: which model a name means, whether its work is admitted, and when its Triton requests are sent."""

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from zooserve.catalogue import Catalogue, Model, ModelNotEnabled, SloClass, Task, UnknownModel
from zooserve.errors import BackendUnavailable, BadInput, DeadlineExceeded, ModelNotFound, Overloaded, ServingError
from zooserve.triton.tensors import InferenceAnswer, Tensor
from zooserve_observability.metrics import RouterMetrics
from zooserve_observability.tracing import Attributes
from zooserve_router.admission import Budget
from zooserve_router.backends.wire import RawAnswer
from zooserve_router.backends.zoo import Inference, Relayed
from zooserve_router.breaker import BREAKER_OPEN
from zooserve_router.context import RequestContext
from zooserve_router.readiness import Readiness

__all__ = [
    "OUTPUTS",
    "Chunk",
    "Job",
    "Relay",
    "Zoo",
    "ZooDispatch",
    "find_model",
    "known_model",
    "model_for",
    "outputs_of",
    "scattered",
    "slo_class_of",
    "tokens_read",
]

T = TypeVar("T")

_ROUTES: dict[Task, str] = {
    "embed": "/v1/embeddings",
    "rerank": "/v1/rerank or /v2/rerank",
    "classify": "/v1/classify",
    "rag_query": "/v1/rag_query",
    "sparse": "/embed_sparse",
    "chat": "/v1/chat/completions",
}
# rag_query: all of them, always. Triton 2.51 calls it a deadlock when an output that a later step reads (`embedding`)
# is asked for without the output of that step.
OUTPUTS: dict[Task, tuple[str, ...]] = {
    "embed": ("embedding", "tokens"),
    "rerank": ("score", "tokens"),
    "classify": ("probabilities", "tokens"),
    "rag_query": ("embedding", "injection_probability", "language", "language_probability", "tokens"),
    "sparse": ("indices", "values", "tokens"),
}
# No alias is that long, and what is like a name of megabytes takes seconds to find out.
_LONGEST_NAME = 200
# Two fill one encoder's batch of 64 while the next pair is on its way; more only lengthens other callers' queue.
_CHUNKS_AT_ONCE = 4


class Zoo(Protocol):
    """What dispatch needs of the zoo's backend."""

    @property
    def is_mistrusted(self) -> bool:
        """Whether its breaker is not closed, and lets one call at a time try."""

    async def infer(self, wanted: Inference) -> InferenceAnswer: ...

    async def relay(self, wanted: Relayed) -> RawAnswer: ...

    async def send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, timeout_s: float
    ) -> RawAnswer: ...


@dataclass(frozen=True)
class Chunk:
    """Rows that go to Triton in one request. `places` says where in the caller's list each row belongs."""

    inputs: tuple[Tensor, ...]
    places: Sequence[int]
    tokens: int
    """What it counts for in admission: an estimate, since texts are counted exactly only by Triton."""
    param: str | None = None
    """The field of the request that its one row is, where a stage is the first to look at what it holds."""


@dataclass(frozen=True)
class Job:
    """The work of one request on one Triton model, cut into chunks."""

    model: Model
    triton_model: str
    slo_class: SloClass
    outputs: tuple[str, ...]
    chunks: tuple[Chunk, ...]
    vital: bool = True
    """Whether the model counts as ready no longer when this Triton model is not there, or hangs."""


@dataclass(frozen=True)
class Relay:
    """An inference that a caller has encoded already, to be passed on as it is."""

    model: Model
    triton_model: str
    slo_class: SloClass
    headers: Mapping[str, str]
    body: bytes
    tokens: int
    """What it counts for in admission."""


def outputs_of(model: Model) -> tuple[str, ...]:
    """What is asked of the model's ensemble; one that reads no text counts no tokens."""
    return OUTPUTS[model.task] if model.modality == "text" else ("probabilities",)


def known_model(catalogue: Catalogue, name: str) -> Model:
    """The model behind a name, an alias or `name@version`. Raises ModelNotFound with the nearest names."""
    try:
        if len(name) > _LONGEST_NAME:
            raise UnknownModel(name, [])
        return catalogue.resolve(name)
    except UnknownModel as exc:
        raise ModelNotFound(_not_found(exc), param="model") from exc


def model_for(catalogue: Catalogue, name: str | None, task: Task) -> Model:
    """The model of this name for this task; the task's first one where the caller names none."""
    if name is not None:
        return find_model(catalogue, name, task)
    models = catalogue.of_task(task)
    if not models:
        raise ModelNotFound(f"No {task} model is served here. GET /v1/models lists them all.", param="model")
    return models[0]


def find_model(catalogue: Catalogue, name: str, task: Task) -> Model:
    """The model of this name. Raises ModelNotFound, or BadInput if its task is another."""
    model = known_model(catalogue, name)
    if model.task != task:
        able = ", ".join(other.name for other in catalogue.of_task(task)) or "none"
        raise BadInput(
            f"{model.name} is a {model.task} model: call it at {_ROUTES[model.task]}. Models for this route: {able}.",
            param="model",
        )
    return model


def _not_found(unknown: UnknownModel) -> str:
    if isinstance(unknown, ModelNotEnabled):
        name = unknown.model.name
        wanted = f"default,{name}" if unknown.model.optional else "default"
        return (
            f"The model {name} is in the catalogue but not enabled here. Whoever runs this platform enables it with "
            f"ZOOSERVE_MODELS={wanted} or `zooserve up --models {wanted}`."
        )
    advice = f"Did you mean {' or '.join(unknown.nearest)}?" if unknown.nearest else "GET /v1/models lists them all."
    return f"The model {unknown.name[:_LONGEST_NAME]!r} does not exist. {advice}"


def slo_class_of(context: RequestContext, items: int, interactive_max_items: int) -> SloClass:
    """The class asked for by header, else bulk for a long list."""
    return context.slo_class or ("bulk" if items > interactive_max_items else "interactive")


class ZooDispatch:
    """Admits jobs for the zoo and runs their chunks, a few at a time."""

    def __init__(
        self, zoo: Zoo, budgets: Mapping[SloClass, Budget], readiness: Readiness, metrics: RouterMetrics
    ) -> None:
        self._zoo = zoo
        self.budgets = budgets
        self._readiness = readiness
        self._metrics = metrics
        self._in_flight: set[asyncio.Task[Any]] = set()

    async def run(self, job: Job, context: RequestContext) -> list[InferenceAnswer]:
        """The answers of the job's chunks, in their order. Raises the first failure, and sends no further chunk then.

        What was sent to Triton runs to its end whatever becomes of the caller, and is admitted for as long.
        """
        unsent = sum(chunk.tokens for chunk in job.chunks)
        unsent_chunks = len(job.chunks)
        budget = self._admitted(job.model, job.slo_class, context, unsent, unsent_chunks)
        answers: dict[int, InferenceAnswer] = {}
        pending = iter(enumerate(job.chunks))

        async def work() -> None:
            nonlocal unsent, unsent_chunks
            for index, chunk in pending:
                unsent -= chunk.tokens
                unsent_chunks -= 1
                answers[index] = await self._to_its_end(
                    self._infer(job, chunk, context), job.model, job.triton_model, budget, chunk.tokens
                )

        try:
            with self._minded(job.model, job.triton_model, context, vital=job.vital):
                async with context.deadline.enforced():
                    at_once = 1 if self._zoo.is_mistrusted else _CHUNKS_AT_ONCE
                    await _all_or_first_failure([work() for _ in job.chunks[:at_once]])
        finally:
            budget.give_back(unsent, unsent_chunks)
        return [answers[index] for index in range(len(job.chunks))]

    async def relay(self, relay: Relay, context: RequestContext) -> RawAnswer:
        """Triton's own answer, also where it refuses the request. Raises what `run` does where Triton fails."""
        budget = self._admitted(relay.model, relay.slo_class, context, relay.tokens, 1)
        sent = self._zoo.relay(
            Relayed(
                relay.triton_model,
                relay.headers,
                relay.body,
                context.deadline.remaining_s(),
                context.trace,
                _tags(relay.model, relay.slo_class),
            )
        )
        with self._minded(relay.model, relay.triton_model, context):
            async with context.deadline.enforced():
                return await self._to_its_end(sent, relay.model, relay.triton_model, budget, relay.tokens)

    def _admitted(
        self, model: Model, slo_class: SloClass, context: RequestContext, tokens: int, requests: int
    ) -> Budget:
        """The budget that so much was taken from. Raises, and counts, that the model is not ready or has no room."""
        try:
            self._readiness.require(model)
        except BackendUnavailable:
            self._metrics.admission_refused(model.name, slo_class, "not_ready")
            raise
        context.record.runs(model, slo_class)
        budget = self.budgets[slo_class]
        try:
            budget.take(tokens, requests)
        except Overloaded:
            self._metrics.admission_refused(model.name, slo_class, budget.lacks(tokens, requests))
            raise
        return budget

    @contextmanager
    def _minded(
        self, model: Model, triton_model: str, context: RequestContext, *, vital: bool = True
    ) -> Iterator[None]:
        """Note how long the zoo takes, and doubt the model if the zoo says that it is not there, or says nothing."""
        with context.record.phase("zoo"):
            try:
                yield
            except BackendUnavailable as fault:
                if fault.code == BREAKER_OPEN:
                    self._metrics.admission_refused(model.name, context.record.slo_class, "breaker")
                elif vital:
                    self._readiness.doubt(model, fault)
                raise
            except DeadlineExceeded as late:
                # Where a stage is told, Triton has answered: its queue was too long, and it does not hang.
                if vital and late.failed is None:
                    self._readiness.unanswered(model, triton_model, context.budget_s)
                raise

    async def drain(self, timeout_s: float) -> None:
        """Wait that long for what is still with Triton, then let go of it."""
        in_flight = list(self._in_flight)
        if in_flight:
            _, hung = await asyncio.wait(in_flight, timeout=timeout_s)
            for task in hung:
                task.cancel()
            await asyncio.gather(*hung, return_exceptions=True)

    async def _to_its_end(
        self, sent: Coroutine[Any, Any, T], model: Model, triton_model: str, budget: Budget, tokens: int
    ) -> T:
        """The call's result. A caller that leaves does not stop it: Triton works on, and the tokens stay taken."""
        task = asyncio.create_task(sent)
        self._in_flight.add(task)
        task.add_done_callback(partial(self._ended, model, triton_model, budget, tokens))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if task.cancelled() and caller is not None and not caller.cancelling():
                raise BackendUnavailable("The router is stopping and let go of this request.") from None
            raise

    def _ended(self, model: Model, triton_model: str, budget: Budget, tokens: int, task: asyncio.Task[Any]) -> None:
        self._in_flight.discard(task)
        budget.give_back(tokens)
        # The exception is looked at in any case, since its caller may have left: asyncio would complain.
        fault = None if task.cancelled() else task.exception()
        if fault is None and not task.cancelled():
            self._readiness.answered(triton_model)  # too late for its caller, perhaps, and still no sign of a hang
        elif isinstance(fault, ServingError) and fault.failed is not None:
            self._readiness.answered(triton_model)
            self._metrics.stage_failed(model.name, fault.failed)

    async def _infer(self, job: Job, chunk: Chunk, context: RequestContext) -> InferenceAnswer:
        remaining_s = context.deadline.remaining_s()
        if remaining_s <= 0:
            raise DeadlineExceeded("The request's time budget ran out before this part of it was sent.")
        return await self._zoo.infer(
            Inference(
                job.triton_model,
                chunk.inputs,
                job.outputs,
                context.request_id,
                remaining_s,
                context.trace,
                _tags(job.model, job.slo_class),
                chunk.param,
            )
        )


def _tags(model: Model, slo_class: SloClass) -> Attributes:
    """What the span of a call to the zoo says of the public model that it is made for."""
    own = {
        "zooserve.model": model.name,
        "zooserve.model_version": str(model.version),
        "zooserve.slo_class": slo_class,
    }
    if model.task not in ("embed", "sparse"):
        return own  # OpenTelemetry knows no other of the zoo's tasks
    named = {
        "gen_ai.operation.name": "embeddings",
        "gen_ai.provider.name": "triton",
        "gen_ai.request.model": model.name,
    }
    return {**own, **named}


def scattered(job: Job, answers: Sequence[InferenceAnswer], output: str) -> npt.NDArray[Any]:
    """The rows of one output of all chunks, in the caller's order."""
    if len(answers) == 1 and list(job.chunks[0].places) == list(range(len(job.chunks[0].places))):
        return answers[0].outputs[output]
    whole = np.concatenate([answer.outputs[output] for answer in answers])
    ordered = np.empty_like(whole)
    ordered[[place for chunk in job.chunks for place in chunk.places]] = whole
    return ordered


def tokens_read(answers: Sequence[InferenceAnswer]) -> int:
    """The tokens that the encoder read, over all chunks."""
    return sum(int(answer.outputs["tokens"].sum()) for answer in answers if "tokens" in answer.outputs)


async def _all_or_first_failure(parts: Sequence[Coroutine[Any, Any, None]]) -> None:
    if len(parts) == 1:
        await parts[0]
        return
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
