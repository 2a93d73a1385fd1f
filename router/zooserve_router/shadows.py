"""Shadows: a share of the requests is computed once more by another release, for nobody but the metrics.

It begins when the caller has the whole answer, and nothing that becomes of it reaches him. What does not fit is left
out and counted: a shadow has no right to make anybody wait.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.background import BackgroundTask

from zooserve.catalogue import Model
from zooserve.errors import InternalError, ServingError
from zooserve_observability.once_a_minute import OnceAMinute
from zooserve_observability.release_metrics import ReleaseLabels, ReleaseMetrics
from zooserve_router.context import Deadline, RequestContext
from zooserve_router.releases import ReleasePolicy

__all__ = ["Shadows", "Work"]

Work = Callable[[Model, RequestContext], Awaitable[object]]
"""The request's own computation, for the model and within the bounds that it is given."""

_AT_ONCE = 8
"""In one replica. Each holds its request's texts, and a share of the bulk class's budget."""
_LONGEST_S = 60.0
"""However little its caller allowed: nobody waits for it, and the bulk class is not in a hurry."""
_CALLER = "shadow"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Mirrored:
    """One request to be computed again."""

    labels: ReleaseLabels
    shadow: Model
    context: RequestContext
    work: Work


class Shadows:
    """Runs what is mirrored, a few at a time, in the bulk class."""

    def __init__(
        self,
        releases: ReleasePolicy,
        is_ready: Callable[[str], bool],
        metrics: ReleaseMetrics,
        at_once: int = _AT_ONCE,
    ) -> None:
        self._releases = releases
        self._is_ready = is_ready
        self._metrics = metrics
        self._at_once = at_once
        self._running: set[asyncio.Task[None]] = set()
        self._warn = OnceAMinute(_log)

    def after(self, answered: Model, context: RequestContext, work: Work) -> BackgroundTask | None:
        """What the response begins once it has been sent, where the request is drawn."""
        shadow = self._releases.shadow_of(answered, context.request_id)
        if shadow is None:
            return None
        labels: ReleaseLabels = (answered.public_name, shadow.name, str(shadow.version), "shadow")
        return BackgroundTask(self._begin, _Mirrored(labels, shadow, _of_its_own(context), work))

    async def close(self) -> None:
        """Let go of everything that runs."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _begin(self, mirrored: _Mirrored) -> None:
        """Begin, and leave it to itself: the request that it is made of is over."""
        if len(self._running) >= self._at_once or not self._is_ready(mirrored.shadow.name):
            self._metrics.skipped(mirrored.labels)
            return
        task = asyncio.create_task(self._run(mirrored), name=f"shadow {mirrored.shadow.name}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, mirrored: _Mirrored) -> None:
        began, outcome = time.perf_counter(), "ok"
        try:
            await mirrored.work(mirrored.shadow, mirrored.context)
        except ServingError as error:
            outcome = type(error).__name__
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except Exception as exc:
            outcome = InternalError.__name__
            # Its words may quote what the caller sent.
            shadow, kind = mirrored.shadow.name, type(exc).__name__
            self._warn("the shadow %s broke on request %s: %s", shadow, mirrored.context.request_id, kind)
        finally:
            self._metrics.ended(mirrored.labels, outcome, time.perf_counter() - began)


def _of_its_own(context: RequestContext) -> RequestContext:
    """The same request's id in a context of its own: its time, its record, and no part in its trace."""
    return RequestContext(
        request_id=context.request_id,
        deadline=Deadline.after(_LONGEST_S),
        slo_class="bulk",
        caller=_CALLER,
    )
