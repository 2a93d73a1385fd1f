"""Many short waits under one time limit."""

import asyncio
from collections.abc import Callable
from types import TracebackType

from zooserve.errors import ServingError
from zooserve_router.context import Deadline

__all__ = ["Waits"]

_AGAIN_S = 0.05


class Waits:
    """What a request waits for, one thing after the other: `with waits: await …`. All of it ends at the deadline.

    One timer serves them all. An `asyncio.timeout` around every token costs as much as reading the token (measured).
    """

    def __init__(self, deadline: Deadline, error: Callable[[], ServingError]) -> None:
        self._error = error
        self._ended = False
        self._task: asyncio.Task[object] | None = None
        """The task that waits, while it does."""
        self._cancellations = 0
        self._interrupted = False
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        self._timer = self._loop.call_later(max(0.0, deadline.remaining_s()), self.end)

    @property
    def ended(self) -> bool:
        """Whether every further wait is refused."""
        return self._ended

    @property
    def waiting_s(self) -> float:
        """How long the wait that is under way has lasted; 0 while nothing is waited for."""
        return self._loop.time() - self._since if self._task is not None else 0.0

    def end(self) -> None:
        """End the wait that is under way, and refuse those to come, with the error."""
        self._ended = True
        if self._task is None or self._interrupted:
            return
        if self._task.cancelling() > self._cancellations:
            # Somebody else ends it already, such as another deadline of this request. What it closes on its way out
            # would stay open if that were interrupted: a connection, say, on which its server then writes on.
            self._timer.cancel()
            self._timer = self._loop.call_later(_AGAIN_S, self.end)
            return
        self._interrupted = True
        self._task.cancel()

    def close(self) -> None:
        """Nothing is waited for any more."""
        self._timer.cancel()

    def __enter__(self) -> None:
        """Begin to wait. Raises the error once all of it has ended."""
        if self._ended:
            raise self._error()
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("only a task can wait")
        self._task, self._cancellations = task, task.cancelling()
        self._since = self._loop.time()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The wait is over. Raises the error where it was ended, unless somebody else cancels the task too."""
        task, self._task = self._task, None
        if task is None or not self._interrupted:
            return
        self._interrupted = False
        if task.uncancel() <= self._cancellations and kind is asyncio.CancelledError:
            raise self._error() from error
