"""The chat models with what the router needs to speak for each: backend, template, tokenizer, budget."""

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from zooserve.catalogue import Catalogue, Model
from zooserve.errors import BackendUnavailable
from zooserve.settings import RouterSettings
from zooserve_router.admission import Budget
from zooserve_router.chat.generation import Conversation, Generation, Piece, Sampling, Work
from zooserve_router.chat.template_files import read_template
from zooserve_router.chat.templates import ChatTemplate
from zooserve_router.chat.tokens import ChatTokenizer, load_tokenizer
from zooserve_router.fair_queue import FairQueue
from zooserve_router.readiness import Probe

__all__ = ["ChatBackend", "ChatModel", "Guardable", "Provable", "chat_probe", "load_chat_models"]

_PROBE_TIMEOUT_S = 30.0
_log = logging.getLogger(__name__)


class ChatBackend(Protocol):
    """What generates, over there. Closing what `generate` returns ends the work there at once.

    Generators of several answers at once may mix their pieces. Raises Unsupported for a kind of work it cannot do.
    """

    def generate(self, work: Work, timeout_s: float) -> AsyncGenerator[Piece, None]: ...


@runtime_checkable
class Provable(Protocol):
    """A backend that can be proven without an answer. Raises a ServingError unless it would give one."""

    async def prove(self, timeout_s: float) -> None: ...


@runtime_checkable
class Guardable(Protocol):
    """A backend that a circuit breaker guards."""

    @property
    def is_mistrusted(self) -> bool:
        """Whether its breaker is not closed, and lets one call at a time try."""


@dataclass(frozen=True)
class ChatModel:
    """A chat model of the catalogue. Without template and tokenizer its backend has its own."""

    model: Model
    backend: ChatBackend
    queue: FairQueue
    """Room in its budget, and who waits for it."""
    template: ChatTemplate | None = None
    tokenizer: ChatTokenizer | None = None

    @property
    def calls_at_once(self) -> int | None:
        """How many calls of one request may run at a time: one where the first has yet to show that they can."""
        if isinstance(self.backend, Guardable) and self.backend.is_mistrusted:
            return 1
        return self.queue.budget.limit_requests


def load_chat_models(
    catalogue: Catalogue, repository: Path, bounds: RouterSettings, backend_of: Callable[[Model], ChatBackend]
) -> Mapping[str, ChatModel]:
    """The chat models whose files are there and can be used; one that is missing shows in that model's readiness.

    Each replica gets its share of a model's KV budget, and of the requests that may be in flight.
    """
    loaded: dict[str, ChatModel] = {}
    for model in catalogue.of_task("chat"):
        try:
            loaded[model.name] = _load(model, repository, bounds, backend_of(model))
        except Exception:  # whatever is wrong with one checkpoint's files must not take the other models down
            _log.exception("%s: its tokenizer, chat template or backend cannot be used", model.name)
    return loaded


def _load(model: Model, repository: Path, bounds: RouterSettings, backend: ChatBackend) -> ChatModel:
    template = read_template(model, repository)
    written = "".join(template.sources) if template else ""
    tokenizer = load_tokenizer(repository / model.tokenizer, written) if model.tokenizer else None
    return ChatModel(model, backend, _queue(model, bounds), template, tokenizer)


def _queue(model: Model, bounds: RouterSettings) -> FairQueue:
    tokens = model.kv_tokens and _share(model.kv_tokens, bounds)
    requests = _share(model.chat_backend.max_in_flight, bounds)
    return FairQueue(Budget(model.name, tokens, requests), bounds.chat_max_waiting)


def _share(whole: int, bounds: RouterSettings) -> int:
    """What one replica gets of it, at least one."""
    return max(1, whole // bounds.replicas)


def chat_probe(model: Model, models: Mapping[str, ChatModel]) -> Probe:
    """A probe that has the model write one real token.

    Somebody else's upstream takes money for each: it is asked for its list of models instead.
    """

    async def probe() -> None:
        if model.name not in models:
            raise BackendUnavailable(
                f"the tokenizer or chat template of {model.name} is missing or broken; run `zooserve fetch` and restart"
            )
        backend = models[model.name].backend
        if model.runs_on == "upstream" and isinstance(backend, Provable):
            await backend.prove(_PROBE_TIMEOUT_S)
            return
        pieces = backend.generate(_one_token(model), _PROBE_TIMEOUT_S)
        async with aclosing(pieces):
            async for _ in pieces:
                pass

    return probe


def _one_token(model: Model) -> Work:
    sampling = Sampling(max_tokens=1, temperature=0.0)
    if model.chat_backend.is_upstream:
        return Conversation([{"role": "user", "content": "Hello"}], sampling, is_probe=True)
    return Generation("Hello", sampling, is_probe=True)
