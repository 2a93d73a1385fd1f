"""Readiness: a model counts as ready once it answered real inferences, and until a call finds it unavailable."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from zooserve.catalogue import Model
from zooserve.errors import BackendUnavailable, ServingError
from zooserve_observability.once_a_minute import OnceAMinute

__all__ = ["ModelState", "Probe", "Readiness"]

Probe = Callable[[], Awaitable[None]]
"""Proves one model by real inferences; raises a ServingError when it does not work."""

_log = logging.getLogger(__name__)
# A hung server refuses nothing: it shows by requests that get no answer, one after the other, with time enough.
_UNANSWERED_IN_A_ROW = 3
_TIME_ENOUGH_S = 1.0
_PAUSES_S = (0.25, 0.5, 1.0, 2.0)


@dataclass(frozen=True)
class ModelState:
    """Whether one model is ready, and if not, why."""

    model: Model
    ready: bool
    reason: str


class Readiness:
    """The state of every model, kept true by one background task per model."""

    def __init__(self, models: Iterable[Model], probes: Mapping[str, Probe]) -> None:
        self._models = {model.name: model for model in models}
        self._probes = probes
        self._faults = dict.fromkeys(self._models, "its first inferences are still running")
        self._doubted = {name: asyncio.Event() for name in self._models}
        self._unanswered: Counter[str] = Counter()
        # A backend that works for its probes alone is doubted many times a second.
        self._warn = {name: OnceAMinute(_log) for name in self._models}
        self._untried = set(self._models)
        self._tried = asyncio.Event()
        self.changed: Callable[[Model, bool], None] | None = None
        """Told of a model when it becomes ready, and when it no longer is."""
        for doubted in self._doubted.values():
            doubted.set()

    def states(self) -> list[ModelState]:
        """Every model's state, in the catalogue's order."""
        return [
            ModelState(model, name not in self._faults, self._faults.get(name, ""))
            for name, model in self._models.items()
        ]

    def is_ready(self, name: str) -> bool:
        """Whether the model of this name works."""
        return name not in self._faults

    @property
    def ready(self) -> bool:
        """Whether every required model works."""
        return not any(self._models[name].required for name in self._faults)

    def require(self, model: Model) -> None:
        """Raises BackendUnavailable, with the reason, unless the model is ready."""
        if model.name in self._faults:
            raise BackendUnavailable(
                f"{model.name} is not ready: {self._faults[model.name]}", param="model", retry_after_s=_PAUSES_S[-1]
            )

    def doubt(self, model: Model, fault: ServingError) -> None:
        """A call found the model unavailable: it is out until it has proven itself again."""
        if model.name not in self._faults:
            self._warn[model.name]("%s is no longer ready: %s", model.name, fault.message)
            self._faults[model.name] = fault.message
            self._doubted[model.name].set()
            self._tell(model.name)

    def unanswered(self, model: Model, triton_model: str, budget_s: float) -> None:
        """A request to `triton_model` ran out of its budget: a few in a row, with no answer between, are a doubt."""
        if budget_s < _TIME_ENOUGH_S:
            return
        self._unanswered[triton_model] += 1
        if self._unanswered[triton_model] >= _UNANSWERED_IN_A_ROW:
            self.answered(triton_model)
            reason = f"{triton_model} left {_UNANSWERED_IN_A_ROW} requests in a row without an answer"
            self.doubt(model, BackendUnavailable(reason))

    def answered(self, triton_model: str) -> None:
        """`triton_model` answered a request, in time or not: it does not hang."""
        self._unanswered.pop(triton_model, None)

    async def tried(self, within_s: float) -> None:
        """Wait until every model was probed once, whatever came of it, or for that long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._tried.wait()

    async def watch(self) -> None:
        """Probe every model until it works, and again whenever it is doubted. Runs until cancelled."""
        async with asyncio.TaskGroup() as group:
            for name in self._models:
                group.create_task(self._watch_one(name), name=f"readiness of {name}")

    async def _watch_one(self, name: str) -> None:
        while True:
            await self._doubted[name].wait()
            self._doubted[name].clear()
            await self._prove(name)

    async def _prove(self, name: str) -> None:
        attempt = 0
        while not await self._works(name):
            self._note_tried(name)
            await asyncio.sleep(_PAUSES_S[min(attempt, len(_PAUSES_S) - 1)])
            attempt += 1
        self._note_tried(name)

    def _note_tried(self, name: str) -> None:
        self._untried.discard(name)
        if not self._untried:
            self._tried.set()

    async def _works(self, name: str) -> bool:
        try:
            await self._probes[name]()
        except ServingError as fault:
            self._faults[name] = fault.message
            return False
        except Exception as fault:
            _log.exception("the probe of %s broke", name)
            self._faults[name] = f"its probe broke: {fault!r}"
            return False
        self._faults.pop(name, None)
        _log.info("%s is ready", name)
        self._tell(name)
        return True

    def _tell(self, name: str) -> None:
        if self.changed is not None:
            self.changed(self._models[name], self.is_ready(name))
