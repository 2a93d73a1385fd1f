"""Which client answers for a chat model, by the kind of backend that the catalogue names."""

from contextlib import AsyncExitStack

from zooserve.catalogue import Model
from zooserve.settings import Settings
from zooserve_router.backends.leaf_clients import opened_leaves
from zooserve_router.backends.upstream_clients import opened_upstream
from zooserve_router.chat.models import ChatBackend

__all__ = ["opened_backend"]


def opened_backend(settings: Settings, stack: AsyncExitStack, model: Model) -> ChatBackend:
    """The client of what answers for this chat model; the stack closes it."""
    opened = opened_upstream if model.chat_backend.is_upstream else opened_leaves
    return opened(settings, stack, model)
