"""What the router knows of one request besides its body: id, class, deadline, trace context."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from zooserve.catalogue import SloClass
from zooserve.errors import DeadlineExceeded

__all__ = ["Deadline", "RequestContext"]


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
            raise DeadlineExceeded(
                "The request's time budget ran out before the answer was complete. Allow more with a longer client "
                "timeout or the x-request-timeout-ms header."
            ) from exc


@dataclass(frozen=True)
class RequestContext:
    """One request's id and bounds, made by the middleware before the body is read."""

    request_id: str
    deadline: Deadline
    slo_class: SloClass | None = None
    """What the caller asked for by header; None leaves the choice to dispatch."""
    traceparent: str | None = None
    started: float = field(default_factory=time.monotonic)
