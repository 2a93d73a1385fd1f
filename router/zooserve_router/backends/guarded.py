"""A chat backend behind a circuit breaker: what its answers show of its health is noted."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from zooserve.errors import BackendFailed, BackendUnavailable, Overloaded
from zooserve_router.breaker import Breaker
from zooserve_router.chat.generation import Piece, Work
from zooserve_router.chat.models import ChatBackend

__all__ = ["Guarded", "guarded"]


class Guarded:
    """One backend that is the only one of its model.

    No call is made twice: gRPC opens a new channel by itself where a kept one has ended, before it sends.
    """

    def __init__(self, backend: ChatBackend, breaker: Breaker) -> None:
        self.backend = backend
        self.breaker = breaker

    @property
    def is_mistrusted(self) -> bool:
        """Whether its breaker is not closed."""
        return not self.breaker.is_closed

    def generate(self, work: Work, timeout_s: float) -> AsyncGenerator[Piece, None]:
        """The backend's answer. Raises BackendUnavailable at once while the breaker is open."""
        return guarded(self.backend, self.breaker, work, timeout_s)


async def guarded(
    backend: ChatBackend, breaker: Breaker, work: Work, timeout_s: float, *, at_once: bool = False
) -> AsyncGenerator[Piece, None]:
    """The backend's answer by way of the breaker, which `at_once` opens with the first failure.

    To be unavailable is a failure, and so is silence for as long as is usual. To be full, or to fail at this one
    request, is to be there.
    """
    with breaker.attempt(timeout_s, is_probe=work.is_probe) as attempt:
        try:
            async with aclosing(backend.generate(work, timeout_s)) as pieces:
                async for piece in pieces:
                    attempt.answered()
                    yield piece
        except BackendUnavailable as fault:
            attempt.failed(fault.message, at_once=at_once)
            raise
        except (Overloaded, BackendFailed):
            attempt.answered()
            raise
