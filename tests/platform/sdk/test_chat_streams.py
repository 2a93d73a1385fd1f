"""Streamed answers against a server that does as it is told: whole, cut off, failing in the middle, left, late."""

import asyncio
import gc
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from zooserve import AsyncZoo, Zoo, errors
from zooserve.sdk.chat_fields import ChatFields, CompletionFields, chat_body, completion_body

HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nx-request-id: req_1\r\n"
    b"x-zooserve-model: chat\r\nx-zooserve-version: 1\r\ntransfer-encoding: chunked\r\n\r\n"
)
END = b"0\r\n\r\n"
HOLD = b""
"""In a script: wait until the client hangs up."""


def part(data: bytes) -> bytes:
    """One chunk of HTTP."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def event(payload: Any) -> bytes:
    """One chunk of HTTP with one event."""
    return part(b"data: " + (payload if isinstance(payload, bytes) else json.dumps(payload).encode()) + b"\n\n")


def said(content: str = "", finish_reason: str | None = None, index: int = 0) -> bytes:
    """The event of one piece of text."""
    choice = {"index": index, "delta": {"content": content} if content else {}, "finish_reason": finish_reason}
    return event({"choices": [choice], "usage": None})


def failed(code: str, **more: Any) -> bytes:
    """The event of a failure."""
    return event(
        {"error": {"message": f"{code} happened", "type": "server_error", "param": None, "code": code, **more}}
    )


USAGE = event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}})
DONE = event(b"[DONE]")
WHOLE = [HEAD, said("Par"), said("is"), said(finish_reason="stop"), USAGE, DONE, END]


class Scripted:
    """Answers each connection by the next script, then closes it; tells what it was asked and who hung up."""

    def __init__(self, *scripts: list[bytes]) -> None:
        self._scripts = list(scripts)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.asked: list[tuple[str, dict[str, str], Any]] = []
        self.left = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        """Serve no more."""
        self._listener.shutdown(socket.SHUT_RDWR)  # this wakes up who accepts, `close` alone does not
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        for script in self._scripts:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with suppress(ConnectionError), connection:  # whoever has read enough hangs up
                self._read(connection)
                for piece in script:
                    if piece == HOLD:
                        self._wait(connection)
                    else:
                        connection.sendall(piece)

    def _read(self, connection: socket.socket) -> None:
        received = b""
        while b"\r\n\r\n" not in received:
            received += connection.recv(65536)
        head, _, body = received.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        while len(body) < int(headers["content-length"]):
            body += connection.recv(65536)
        self.asked.append((first, headers, json.loads(body)))

    def _wait(self, connection: socket.socket) -> None:
        try:
            while connection.recv(65536):
                pass
        except ConnectionError:
            pass
        self.left.set()


@pytest.fixture
def scripted() -> Iterator[Callable[..., Scripted]]:
    """Makes such servers."""
    made: list[Scripted] = []

    def make(*scripts: list[bytes]) -> Scripted:
        made.append(Scripted(*scripts))
        return made[-1]

    yield make
    for server in made:
        server.close()


async def read_by_asyncio(url: str, **options: Any) -> Any:
    """The stream, read to its end by AsyncZoo; what came is in `.text` of the error otherwise."""
    async with AsyncZoo(url, retries=options.pop("retries", 0)) as zoo:
        pieces: list[str] = []
        async with zoo.chat_stream("hello", **options) as stream:
            try:
                pieces.extend([text async for text in stream])
            except errors.ZooserveError as error:
                error.add_note(stream.text)
                raise
        return pieces, stream


async def read_by_thread(url: str, **options: Any) -> Any:
    """The same by Zoo, in a thread of its own."""

    def read() -> Any:
        with Zoo(url, retries=options.pop("retries", 0)) as zoo, zoo.chat_stream("hello", **options) as stream:
            try:
                return list(stream), stream
            except errors.ZooserveError as error:
                error.add_note(stream.text)
                raise

    return await asyncio.to_thread(read)


both = pytest.mark.parametrize("read", [read_by_asyncio, read_by_thread])


@both
async def test_the_pieces_come_one_by_one_and_the_answer_is_whole_at_the_end(read: Any, scripted: Any) -> None:
    server = scripted(WHOLE)
    pieces, stream = await read(server.url, max_tokens=2, stop=None)
    assert pieces == ["Par", "is"]
    assert (stream.answer.text, stream.answer.finish_reason, stream.answer.usage.total_tokens) == ("Paris", "stop", 5)
    assert (stream.model, stream.version, stream.request_id) == ("chat", "1", "req_1")
    assert (stream.answer.model, stream.answer.version, stream.answer.request_id) == ("chat", "1", "req_1")
    first, headers, body = server.asked[0]
    assert first == "POST /v1/chat/completions HTTP/1.1"
    assert headers["x-request-timeout-ms"]
    assert body == {
        "messages": [{"role": "user", "content": "hello"}],
        "model": "chat",
        "stream_options": {"include_usage": True},
        "max_tokens": 2,
        "stream": True,
    }


@both
@pytest.mark.parametrize(
    "script",
    [
        [HEAD, said("Par"), said("is"), END],
        [HEAD, said("Par"), said("is"), said(finish_reason="stop"), USAGE, END],
        [HEAD, said("Par"), said("is")],
        [HEAD, said("Par"), said("is"), b"ffff\r\ndata: {"],
    ],
    ids=["no end", "no [DONE]", "hung up", "in the middle of a chunk"],
)
async def test_an_answer_that_breaks_off_is_an_error(read: Any, script: list[bytes], scripted: Any) -> None:
    with pytest.raises(errors.AnswerBrokeOff, match="broke off in the middle") as caught:
        await read(scripted(script).url)
    assert caught.value.request_id == "req_1"
    assert caught.value.__notes__ == ["Paris"]


@both
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("deadline_exceeded", errors.DeadlineExceeded),
        ("backend_failed", errors.BackendFailed),
        ("internal_error", errors.InternalError),
        ("what nobody knows", errors.BackendFailed),
    ],
)
async def test_a_failure_in_the_middle_is_the_error_that_it_tells_of(
    read: Any, code: str, kind: type[errors.ServingError], scripted: Any
) -> None:
    stage = {"name": "tensorrt_llm", "version": "1", "reason": "error"}
    server = scripted([HEAD, said("Par"), failed(code, failed_stage=stage), DONE, END])
    with pytest.raises(kind, match=f"{code} happened") as caught:
        await read(server.url)
    assert type(caught.value) is kind
    assert (caught.value.code, caught.value.request_id) == (code, "req_1")
    assert caught.value.failed == errors.FailedStage("tensorrt_llm", "1", "error")
    assert caught.value.__notes__ == ["Par"]


@both
@pytest.mark.parametrize("wrong", [b"no json", b"[]", b'{"choices": [{}]}', b'{"choices": 5}'])
async def test_an_event_that_is_no_chunk_is_unreadable(read: Any, wrong: bytes, scripted: Any) -> None:
    with pytest.raises(errors.UnreadableAnswer) as caught:
        await read(scripted([HEAD, event(wrong), DONE, END]).url)
    assert caught.value.request_id == "req_1"


@both
async def test_an_answer_that_is_no_stream_is_unreadable(read: Any, scripted: Any) -> None:
    page = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\nhi"
    with pytest.raises(errors.UnreadableAnswer, match="does not stream"):
        await read(scripted([page]).url)


@both
async def test_silence_in_the_middle_ends_with_the_budget(read: Any, scripted: Any) -> None:
    server = scripted([HEAD, said("Par"), HOLD])
    with pytest.raises(errors.DeadlineExceeded, match=r"within 0.5 s") as caught:
        await read(server.url, timeout_s=0.5)
    assert caught.value.__notes__ == ["Par"]
    assert server.left.wait(30)


@both
async def test_a_refusal_before_the_first_byte_is_tried_again(read: Any, scripted: Any) -> None:
    full = b"HTTP/1.1 429 Full\r\nretry-after-ms: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    server = scripted([full], WHOLE)
    pieces, _ = await read(server.url, retries=1)
    assert pieces == ["Par", "is"]
    assert server.asked[0][1]["x-request-id"] == server.asked[1][1]["x-request-id"]


@both
async def test_nothing_is_tried_again_once_it_began(read: Any, scripted: Any) -> None:
    server = scripted([HEAD], WHOLE)
    with pytest.raises(errors.AnswerBrokeOff):
        await read(server.url, retries=1)
    assert len(server.asked) == 1


async def test_leaving_the_block_hangs_up(scripted: Any) -> None:
    server = scripted([HEAD, said("Par"), HOLD])
    async with AsyncZoo(server.url) as zoo:
        async with zoo.chat_stream("hello") as stream:
            assert await anext(stream) == "Par"
        assert await asyncio.to_thread(server.left.wait, 30)
        with pytest.raises(errors.ClientClosed, match="inside its `with` block"):
            await anext(stream)
        with pytest.raises(errors.ClientClosed, match="not whole yet"):
            _ = stream.answer
        assert stream.text == "Par"


def test_leaving_the_block_of_the_blocking_client_hangs_up(scripted: Any) -> None:
    server = scripted([HEAD, said("Par"), HOLD])
    with Zoo(server.url) as zoo:
        with zoo.chat_stream("hello") as stream:
            assert next(stream) == "Par"
        assert server.left.wait(30)
        with pytest.raises(errors.ClientClosed):
            next(stream)


def test_a_stream_that_nobody_holds_any_more_hangs_up(scripted: Any) -> None:
    server = scripted([HEAD, said("Par"), HOLD])
    with Zoo(server.url) as zoo:
        block = zoo.chat_stream("hello")
        stream = block.__enter__()
        assert next(stream) == "Par"
        del block, stream
        gc.collect()
        assert server.left.wait(30)


async def test_a_stream_of_a_loop_that_nobody_holds_any_more_hangs_up(scripted: Any) -> None:
    server = scripted([HEAD, said("Par"), HOLD])
    async with AsyncZoo(server.url) as zoo:
        block = zoo.chat_stream("hello")
        stream = await block.__aenter__()
        assert await anext(stream) == "Par"
        del block, stream
        gc.collect()
        assert await asyncio.to_thread(server.left.wait, 30)


def test_a_block_may_be_left_twice_or_never_entered_and_a_whole_stream_read_again(scripted: Any) -> None:
    server = scripted(WHOLE)
    with Zoo(server.url) as zoo:
        zoo.chat_stream("never")
        block = zoo.chat_stream("hello")
        with block as stream:
            assert list(stream) == ["Par", "is"]
            assert list(stream) == list(stream.events()) == []
        block.__exit__(None, None, None)
        assert list(stream) == []
        assert stream.answer.text == "Paris"
    assert len(server.asked) == 1


def test_half_of_the_events_may_be_left(scripted: Any) -> None:
    server = scripted([HEAD, said("Par"), said("is"), HOLD])
    with Zoo(server.url) as zoo:
        with zoo.chat_stream("hello") as stream:
            events = stream.events()
            next(iter(events))
            del events
            assert next(stream) == "is"
        assert server.left.wait(30)


def test_a_stream_whose_client_is_closed_says_so(scripted: Any) -> None:
    server = scripted([HEAD, said("Par"), HOLD])
    zoo = Zoo(server.url)
    with zoo.chat_stream("hello", timeout_s=60) as stream:
        assert next(stream) == "Par"
        zoo.close()
        assert server.left.wait(30)
        with pytest.raises(errors.ClientClosed, match="client was closed"):
            next(stream)
    with pytest.raises(errors.ClientClosed), zoo.chat_stream("hello"):
        pass


async def test_a_stream_of_a_loop_whose_client_is_closed_says_so(scripted: Any) -> None:
    server = scripted([HEAD, said("Par"), HOLD])
    zoo = AsyncZoo(server.url)
    async with zoo.chat_stream("hello", timeout_s=60) as stream:
        assert await anext(stream) == "Par"
        await zoo.aclose()
        assert await asyncio.to_thread(server.left.wait, 30)
        with pytest.raises(errors.ClientClosed, match="client was closed"):
            await anext(stream)


async def test_a_task_that_is_cancelled_hangs_up(scripted: Any) -> None:
    server = scripted([HEAD, said("Par"), HOLD])
    began = asyncio.Event()

    async def listen(zoo: AsyncZoo) -> None:
        async with zoo.chat_stream("hello") as stream:
            async for _ in stream:
                began.set()

    async with AsyncZoo(server.url) as zoo:
        task = asyncio.create_task(listen(zoo))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(server.left.wait, 30)


async def test_an_error_in_the_block_hangs_up(scripted: Any) -> None:
    server = scripted([HEAD, said("Par"), HOLD])

    async def fail(zoo: AsyncZoo) -> None:
        async with zoo.chat_stream("hello") as stream:
            raise RuntimeError(await anext(stream))

    async with AsyncZoo(server.url) as zoo:
        with pytest.raises(RuntimeError, match="Par"):
            await fail(zoo)
        assert await asyncio.to_thread(server.left.wait, 30)


async def test_events_are_the_chunks_of_all_choices(scripted: Any) -> None:
    script = [HEAD, said("a"), said("x", index=1), said(finish_reason="stop"), said("", "length", 1), DONE, END]
    async with AsyncZoo(scripted(script).url) as zoo, zoo.complete_stream("hello", n=2) as stream:
        chunks = [chunk async for chunk in stream.events()]
    assert [chunk["choices"][0]["index"] for chunk in chunks] == [0, 1, 0, 1]
    assert [(choice.text, choice.finish_reason) for choice in stream.answer.choices] == [("a", "stop"), ("x", "length")]
    assert stream.answer.usage is None


async def test_the_trace_goes_along(scripted: Any) -> None:
    server = scripted(WHOLE)
    parent = SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    with trace.use_span(NonRecordingSpan(parent)):
        await read_by_asyncio(server.url)
    assert server.asked[0][1]["traceparent"] == f"00-{0xABC:032x}-{0xDEF:016x}-01"


@pytest.mark.parametrize("messages", ["", [], ["hello"], [{"content": "hello"}], {"role": "user"}, 5, None, "\ud800"])
def test_what_is_no_conversation_is_refused_before_it_is_sent(messages: Any) -> None:
    with pytest.raises(errors.BadInput) as caught:
        chat_body(messages, "chat", {})
    assert caught.value.param.startswith("messages")


def test_stream_is_no_field(scripted: Any) -> None:
    with pytest.raises(errors.BadInput, match="use `chat_stream`"):
        completion_body("hello", "chat", {"stream": True})


def test_the_fields_are_those_of_the_page_on_chats() -> None:
    page = (Path(__file__).parents[3] / "docs" / "chat.md").read_text()
    table = page.partition("## Fields of")[2].partition("\n## ")[0]
    names = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `") and "refused" not in row]
    listed = {name for cell in names for name in re.findall(r"`([a-z_]+)", cell)}
    assert listed - {"model", "messages", "stream"} == set(ChatFields.__annotations__)
    assert {"echo", "best_of"} <= set(CompletionFields.__annotations__)
