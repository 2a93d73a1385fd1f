"""Upstreams that speak OpenAI's API: vLLM, SGLang, TensorRT-LLM's, llama.cpp's server, and OpenAI itself."""

from collections.abc import AsyncGenerator

from zooserve.sdk.sse import ServerEvent
from zooserve_router.backends.openai_reply import ChunkReader
from zooserve_router.backends.openai_request import chat_body, completion_body
from zooserve_router.backends.upstream import Upstream
from zooserve_router.chat.generation import Conversation, Piece, Work

__all__ = ["OpenAIUpstream"]

_DONE = "[DONE]"


class OpenAIUpstream:
    """One model at one upstream."""

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
        """The answer piece by piece, as it is written over there; its usage last, where it is told.

        Closing the generator, or cancelling the task that reads it, closes the connection.
        """
        upstream = self._upstream
        if isinstance(work, Conversation):
            path, body, choices = "/chat/completions", chat_body(work, upstream.model), work.n
        else:
            path, body, choices = "/completions", completion_body(work, upstream.model), 1
        reader = ChunkReader(upstream.model.name, choices, work.sampling.logprobs or 0)
        async with upstream.answering(work, path, body, _is_done, timeout_s) as events:
            async for event in events:
                if not _is_done(event):
                    for piece in reader.pieces(upstream.object_in(event)):
                        yield piece
        for piece in reader.end():
            yield piece


def _is_done(event: ServerEvent) -> bool:
    return event.data == _DONE
