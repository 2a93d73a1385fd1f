"""Anthropic's Messages API as a backend: conversations translated there, its events translated back."""

from collections.abc import AsyncGenerator

from zooserve.errors import Unsupported
from zooserve.sdk.sse import ServerEvent
from zooserve_router.backends.anthropic_reply import EventTranslator
from zooserve_router.backends.anthropic_request import messages_body
from zooserve_router.backends.refusals import in_callers_words
from zooserve_router.backends.upstream import Upstream
from zooserve_router.chat.generation import Conversation, Piece, Work

__all__ = ["AnthropicUpstream"]


class AnthropicUpstream:
    """One model at Anthropic, or at somebody who speaks its API."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    @property
    def is_mistrusted(self) -> bool:
        """Whether the upstream's breaker is not closed."""
        return not self._upstream.way.breaker.is_closed

    async def prove(self, timeout_s: float) -> None:
        """That it is there and takes our key, at no cost. Raises a ServingError otherwise."""
        await self._upstream.list_models(timeout_s)

    async def generate(self, work: Work, timeout_s: float) -> AsyncGenerator[Piece, None]:
        """The answer piece by piece, as it is written over there; its usage last.

        Closing the generator, or cancelling the task that reads it, closes the connection.
        """
        upstream = self._upstream
        if not isinstance(work, Conversation):
            raise Unsupported(f"{upstream.model.name} takes messages, and no raw prompts.", param="prompt")
        translator = EventTranslator(upstream.model.name)
        with in_callers_words(work):
            body = messages_body(work, upstream.model)
        async with upstream.answering(work, "/messages", body, _is_stop, timeout_s) as events:
            async for event in events:
                for piece in translator.pieces(upstream.object_in(event)):
                    yield piece
        for piece in translator.end():
            yield piece


def _is_stop(event: ServerEvent) -> bool:
    return event.name == "message_stop"
