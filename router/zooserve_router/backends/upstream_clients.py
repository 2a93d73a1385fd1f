"""The client of a chat model that is asked over HTTP: where it is, and with which key."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack
from types import MappingProxyType

from zooserve.catalogue import Model
from zooserve.errors import BackendUnavailable
from zooserve.settings import Settings, secret
from zooserve_router.backends.anthropic import AnthropicUpstream
from zooserve_router.backends.openai import OpenAIUpstream
from zooserve_router.backends.upstream import Upstream, client_for
from zooserve_router.chat.generation import Piece, Work
from zooserve_router.chat.models import ChatBackend
from zooserve_router.ways import Ways

__all__ = ["Unaddressed", "opened_upstream"]

_ANTHROPIC_VERSION = "2023-06-01"


class Unaddressed:
    """Answers for a model whose upstream cannot be asked at all: it says why, and is never ready."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    async def prove(self, timeout_s: float) -> None:
        """Raises BackendUnavailable with the reason."""
        raise BackendUnavailable(self._reason)

    async def generate(self, work: Work, timeout_s: float) -> AsyncGenerator[Piece, None]:
        """Raises BackendUnavailable with the reason."""
        raise BackendUnavailable(self._reason)
        yield Piece()  # makes this a generator


def opened_upstream(settings: Settings, stack: AsyncExitStack, model: Model, ways: Ways) -> ChatBackend:
    """The client of the platform's own engine, or of somebody else's upstream; the stack closes its connections."""
    if model.runs_on == "engine":
        return _own_engine(settings, stack, model, ways)
    backend = model.chat_backend
    key = None if backend.key_env is None else secret(backend.key_env)
    if backend.key_env is not None and key is None:
        return Unaddressed(
            f"the key of its upstream is missing: set {backend.key_env} in the environment of the router, and restart."
        )
    return _client(stack, model, str(backend.url), key, ways)


def _own_engine(settings: Settings, stack: AsyncExitStack, model: Model, ways: Ways) -> ChatBackend:
    engine = settings.engine
    if engine.port is None:
        return Unaddressed("the engine's address is not known: set ZOOSERVE_ENGINE__PORT and ZOOSERVE_ENGINE__KEY.")
    host = f"[{engine.host}]" if ":" in engine.host else engine.host
    return _client(stack, model, f"http://{host}:{engine.port}/v1", engine.key, ways)


def _client(stack: AsyncExitStack, model: Model, url: str, key: str | None, ways: Ways) -> ChatBackend:
    http = client_for(model)
    stack.push_async_callback(http.aclose)
    upstream = Upstream(http, model, url.rstrip("/"), _headers(model, key), ways.way(model.name))
    return AnthropicUpstream(upstream) if model.chat_backend.kind == "anthropic" else OpenAIUpstream(upstream)


def _headers(model: Model, key: str | None) -> Mapping[str, str]:
    if model.chat_backend.kind == "anthropic":
        headers = {"anthropic-version": _ANTHROPIC_VERSION, **({} if key is None else {"x-api-key": key})}
    else:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return MappingProxyType(headers)
