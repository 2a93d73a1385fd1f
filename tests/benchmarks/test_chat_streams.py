"""The benchmarks' own HTTP client: answers in any pieces, kept connections that end, refusals."""

import asyncio
import importlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
# The last header ends as a chunked body does.
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nKeep-Alive: timeout=5, max=100\r\n\r\n"


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Any:
    """benchmarks/ is a folder of scripts that import each other by name."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("chat_streams")


def event(delta: dict[str, Any], reason: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return b"data: " + json.dumps({"choices": [choice], **more}).encode() + b"\n\n"


ANSWER = [
    event({"role": "assistant", "content": ""}),
    event({"content": "It is "}),
    event({"content": "Paris."}),
    event({}, "stop"),
    b'data: {"choices": [], "usage": {"completion_tokens": 4}}\n\n',
    b"data: [DONE]\n\n",
]


def chunked(parts: list[bytes]) -> bytes:
    return HEAD + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def whole(answer: bytes) -> Iterator[bytes]:
    yield answer


def byte_by_byte(answer: bytes) -> Iterator[bytes]:
    for at in range(len(answer)):
        yield answer[at : at + 1]


@asynccontextmanager
async def serving(
    answer: bytes, pieces: Callable[[bytes], Iterator[bytes]] = whole, *, keep: bool = True
) -> AsyncIterator[str]:
    """A server that gives this answer to every request, and its address."""

    served: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        served.add(task)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0]))
                for piece in pieces(answer):
                    writer.write(piece)
                    await asyncio.sleep(0)
                if not keep:
                    break
        except asyncio.IncompleteReadError:
            pass
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    async with server:
        yield f"{host}:{port}"
        await asyncio.gather(*served)


@pytest.mark.parametrize("pieces", [whole, byte_by_byte])
async def test_an_answer_is_read_whatever_pieces_it_comes_in(streams, pieces) -> None:
    async with serving(chunked(ANSWER), pieces) as address:
        client = streams.EventClient(address, "chat")
        heard = [await client.ask("Where?", 8) for _ in range(3)]
        await client.close()
    assert {(each.text, each.finish_reason, each.completion_tokens) for each in heard} == {("It is Paris.", "stop", 4)}
    assert all(0 < each.first_s <= each.whole_s for each in heard)


async def test_a_kept_connection_that_the_server_closed_is_replaced(streams) -> None:
    async with serving(chunked(ANSWER), keep=False) as address:
        client = streams.EventClient(address, "chat")
        heard = [await client.ask("Where?", 8) for _ in range(3)]
        await client.close()
    assert len(heard) == 3


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\n{}",
        chunked([b'data: {"error": {"message": "late"}}\n\n', b"data: [DONE]\n\n"]),
        chunked([event({"content": "half"}), b"data: [DONE]\n\n"]),
    ],
    ids=["a refusal", "an error event", "no finish reason"],
)
async def test_what_is_no_whole_answer_raises(streams, answer) -> None:
    async with serving(answer) as address:
        client = streams.EventClient(address, "chat")
        with pytest.raises(streams.StreamFailed):
            await client.ask("Where?", 8)
        await client.close()


async def test_an_answer_that_breaks_off_raises(streams) -> None:
    async with serving(chunked(ANSWER)[:-20], keep=False) as address:
        client = streams.EventClient(address, "chat")
        with pytest.raises(streams.StreamFailed, match="lost"):
            await client.ask("Where?", 8)
        await client.close()


def test_no_two_questions_begin_alike(streams) -> None:
    questions = streams.distinct_questions(64, 40, seed=3)
    assert len({" ".join(question.split()[:5]) for question in questions}) == 64
