"""What the router knows of one request besides its body: id, class, deadline, trace context, and what became of it."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from zooserve.catalogue import Model, SloClass
from zooserve.errors import DeadlineExceeded, ServingError
from zooserve_observability.tracing import NO_TRACE, RequestTrace

__all__ = ["ANONYMOUS", "Deadline", "Record", "RequestContext"]

ANONYMOUS = "anonymous"
"""Everybody who sends no credentials: the address that a replica sees is its proxy's."""


@dataclass(frozen=True)
class Deadline:
    """A moment on the monotonic clock by which the whole answer is due."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """The deadline that many seconds from now."""
        return cls(time.monotonic() + seconds)

    def remaining_s(self) -> float:
        """Seconds left; negative once it has passed."""
        return self.at - time.monotonic()

    @asynccontextmanager
    async def enforced(self) -> AsyncIterator[None]:
        """Cancel the block at the deadline and raise DeadlineExceeded."""
        try:
            async with asyncio.timeout(self.remaining_s()):
                yield
        except TimeoutError as exc:
            raise self.exceeded() from exc

    def exceeded(self) -> DeadlineExceeded:
        """What a request is told that ran out of its budget."""
        return DeadlineExceeded(
            "The request's time budget ran out before the answer was complete. Allow more with a longer client "
            "timeout or the x-request-timeout-ms header."
        )


@dataclass
class Record:
    """What a request turned out to be, filled in on its way; the middleware makes headers and metrics of it."""

    model: Model | None = None
    slo_class: SloClass = "interactive"
    outcome: str = "ok"
    """`ok`, `cancelled`, or the name of the error that ended it."""
    error: ServingError | None = None
    """What ended it, where it was an error."""
    space: str | None = None
    """The embedding space of the answer's vectors, where it has any."""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int | None = None
    """Of the input, where the backend says so."""
    reasoning_tokens: int | None = None
    """Of the output, where the backend says so."""
    phases_s: dict[str, float] = field(default_factory=dict)
    bytes_in: int = 0
    """Of the body, as far as it was read."""
    bytes_out: int = 0
    """Of the answer's body."""

    def counted(
        self,
        input_tokens: int,
        output_tokens: int,
        cached_tokens: int | None = None,
        reasoning_tokens: int | None = None,
    ) -> None:
        """The backend has counted: its figures take the place of ours."""
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens
        self.cached_tokens = cached_tokens
        self.reasoning_tokens = reasoning_tokens

    def runs(self, model: Model, slo_class: SloClass) -> None:
        """The request goes to this model, in this class."""
        self.model = model
        self.slo_class = slo_class

    def failed(self, error: ServingError) -> None:
        """The request ends with this error."""
        self.outcome = type(error).__name__
        self.error = error

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the block's duration to the phase of this name."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.phases_s[name] = self.phases_s.get(name, 0.0) + time.perf_counter() - began


@dataclass(frozen=True)
class RequestContext:
    """One request's id and bounds, made by the middleware before the body is read."""

    request_id: str
    deadline: Deadline
    slo_class: SloClass | None = None
    """What the caller asked for by header; None leaves the choice to dispatch."""
    space: str | None = None
    """The embedding space that the caller insists on."""
    trace: RequestTrace = NO_TRACE
    caller: str = ANONYMOUS
    """Whose request this is, for sharing what there is: a hash of the credentials it came with."""
    started: float = field(default_factory=time.monotonic)
    record: Record = field(default_factory=Record)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the block's duration to the phase of this name, and make it a span of the request's trace.

        The span bears the model that is known by its end.
        """
        with self.record.phase(name), self.trace.span(name) as span:
            yield
            if (model := self.record.model) is not None:
                span.set_attributes({"zooserve.model": model.name, "zooserve.model_version": str(model.version)})

    @property
    def budget_s(self) -> float:
        """The time that the whole request was given."""
        return self.deadline.at - self.started
