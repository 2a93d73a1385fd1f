"""Which client answers for a chat model, by the kind of backend that the catalogue names."""

from contextlib import AsyncExitStack

from zooserve.catalogue import Model
from zooserve.settings import Settings
from zooserve_observability.leaf_metrics import LeafMetrics
from zooserve_router.backends.leaf_clients import opened_leaves
from zooserve_router.backends.upstream_clients import opened_upstream
from zooserve_router.chat.models import ChatBackend
from zooserve_router.ways import Ways

__all__ = ["opened_backend"]


def opened_backend(
    settings: Settings, stack: AsyncExitStack, model: Model, *, ways: Ways, metrics: LeafMetrics | None = None
) -> ChatBackend:
    """The client of what answers for this chat model; the stack closes it, and `metrics` is told of several leaves."""
    if model.chat_backend.is_upstream:
        return opened_upstream(settings, stack, model, ways)
    return opened_leaves(settings, stack, model, ways, metrics)
