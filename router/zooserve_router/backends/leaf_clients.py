"""The client of a chat model on Triton, by the contract that its server speaks: one leaf, or several."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack
from dataclasses import dataclass
from types import MappingProxyType

from zooserve.catalogue import Backend, BackendKind, Model
from zooserve.settings import Settings
from zooserve_observability.leaf_metrics import LeafMetrics
from zooserve_router.affinity import IDLE_PART
from zooserve_router.backends.engine_path import EnginePath
from zooserve_router.backends.guarded import Guarded
from zooserve_router.backends.leaf import Leaf
from zooserve_router.backends.leaves import Leaves, by_affinity
from zooserve_router.backends.vllm import Vllm
from zooserve_router.chat.models import ChatBackend
from zooserve_router.ways import Ways

__all__ = ["opened_leaves"]

_Client = Leaf | EnginePath | Vllm
_CLIENTS: Mapping[BackendKind, Callable[[str, str, Backend], _Client]] = MappingProxyType(
    {
        "llmapi": lambda address, model, backend: Leaf(address, model, backend.lora),
        "tensorrt_llm": lambda address, model, _: EnginePath(address, model),
        "vllm": lambda address, model, _: Vllm(address, model),
    }
)


@dataclass(frozen=True)
class _OfModel:
    """The leaves' metrics, for one model."""

    model: str
    metrics: LeafMetrics

    def flying(self, leaf: str) -> AbstractContextManager[None]:
        return self.metrics.flying(self.model, leaf)

    def left_out(self, leaf: str) -> None:
        self.metrics.left_out(self.model, leaf)


def opened_leaves(
    settings: Settings, stack: AsyncExitStack, model: Model, ways: Ways, metrics: LeafMetrics | None = None
) -> ChatBackend:
    """The platform's own leaf, or those that the catalogue names; the stack closes their channels."""
    own = f"{settings.leaf.host}:{settings.leaf.grpc_port}"
    addresses = model.chat_backend.leaves or (own,)
    clients = {address: _opened(stack, model, address) for address in addresses}
    if len(clients) == 1:
        endpoint = f"leaf:{addresses[0]}" if model.chat_backend.leaves else "leaf"
        return Guarded(clients[addresses[0]], ways.way(endpoint).breaker)
    shares = IDLE_PART * len(clients) * settings.router.replicas
    choose = by_affinity((model.kv_tokens or 0) // shares)
    if metrics is not None:
        metrics.expects(model.name, clients)
    return Leaves(clients, choose, told=None if metrics is None else _OfModel(model.name, metrics), ways=ways)


def _opened(stack: AsyncExitStack, model: Model, address: str) -> _Client:
    backend = model.chat_backend
    client = _CLIENTS[backend.kind](address, model.triton_model("interactive"), backend)
    stack.push_async_callback(client.close)
    return client
