"""An upstream may be left twice at once, by the deadline and by the caller: its connection is closed all the same."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from zooserve_router.backends.openai import OpenAIUpstream
from zooserve_router.backends.upstream import Upstream, client_for
from zooserve_router.chat.generation import Conversation, Sampling

HELLO = Conversation([{"role": "user", "content": "Hello"}], Sampling(5))
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
FIRST = b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n'


class Endless:
    """A server that says this much, never more, and knows whether its caller is still there."""

    def __init__(self, beginning: bytes) -> None:
        self._beginning = beginning
        self.begun = asyncio.Event()
        self.left = asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until its caller closes it."""
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self._beginning)
        self.begun.set()
        try:
            while await reader.read(2**16):
                pass
        except ConnectionResetError:  # an end as good as another
            pass
        self.left.set()
        writer.close()

    @asynccontextmanager
    async def asked(self, model: Any) -> AsyncIterator[asyncio.Task[None]]:
        """Somebody who reads its answer."""
        server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        async with server, client_for(model) as http:
            upstream = OpenAIUpstream(Upstream(http, model, f"http://{host}:{port}/v1"))
            reading = asyncio.create_task(self._read(upstream))
            await self.begun.wait()
            yield reading

    async def _read(self, upstream: OpenAIUpstream) -> None:
        async for _ in upstream.generate(HELLO, 60):
            pass


@pytest.mark.parametrize("steps", range(8))
@pytest.mark.parametrize(
    "beginning", [b"", HEAD, HEAD + b"%x\r\n%s\r\n" % (len(FIRST), FIRST)], ids=["", "head", "text"]
)
async def test_a_second_cancellation_does_not_keep_the_connection_open(
    model: Callable[..., Any], beginning: bytes, steps: int
) -> None:
    server = Endless(beginning)
    async with server.asked(model()) as reading:
        for _ in range(20):
            await asyncio.sleep(0)
        reading.cancel()
        for _ in range(steps):
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        async with asyncio.timeout(5):
            await server.left.wait()
