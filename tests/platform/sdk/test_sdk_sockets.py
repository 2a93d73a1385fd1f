"""Both clients against sockets that behave badly: dripping, silent, hanging up; and what they do to them themselves."""

import asyncio
import base64
import gc
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from zooserve import AsyncZoo, Zoo, errors

Calling = Callable[..., Any]
PATIENCE_S = 60
"""For what must come and does at once, on a machine of any speed."""

HEAD = (
    b"HTTP/1.1 200 OK\r\nx-request-id: r\r\nx-zooserve-model: embed\r\nx-zooserve-version: 1\r\n"
    b"x-zooserve-embedding-space: s\r\ncontent-type: application/json\r\n"
)
CARDS = b'{"data": []}'
MODELS = HEAD + b"content-length: 12\r\n\r\n" + CARDS


class Server:
    """Gives each connection to `behave`, in a thread of its own; counts them, and notices who hangs up on it."""

    def __init__(self, behave: Callable[["Server", socket.socket, bytes], None]) -> None:
        self.connections = 0
        self.asked = threading.Semaphore(0)
        self.left = threading.Semaphore(0)
        self._behave = behave
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._start(self._accept)

    def _start(self, work: Callable[..., None], *arguments: Any) -> None:
        self._threads.append(threading.Thread(target=work, args=arguments, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                self._open.append(connection)
                self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            while request := self._request(connection):
                self.asked.release()
                self._behave(self, connection, request)

    def _request(self, connection: socket.socket) -> bytes:
        received = b""
        while b"\r\n\r\n" not in received:
            received += (more := connection.recv(65536))
            if not more:
                return b""
        head, _, body = received.partition(b"\r\n\r\n")
        length = next(
            (int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if b"content-length" in line), 0
        )
        while len(body) < length:
            body += connection.recv(65536)
        return body or b"GET"

    def hold(self, connection: socket.socket) -> None:
        """Say nothing until the client is gone."""
        with suppress(OSError):
            while connection.recv(65536):
                pass
        self.left.release()

    def close(self) -> None:
        """Of everything."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        for thread in self._threads:
            thread.join(PATIENCE_S)


@pytest.fixture
def serving() -> Iterator[Callable[[Callable[[Server, socket.socket, bytes], None]], Server]]:
    servers: list[Server] = []

    def start(behave: Callable[[Server, socket.socket, bytes], None]) -> Server:
        servers.append(Server(behave))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def vectors_for(body: bytes) -> bytes:
    """What the platform would answer."""
    rows = [
        {"index": place, "embedding": base64.b64encode(struct.pack("<f", len(text))).decode()}
        for place, text in enumerate(json.loads(body)["input"])
    ]
    answer = json.dumps({"data": rows, "usage": {"prompt_tokens": 1}}).encode()
    return HEAD + b"content-length: %d\r\n\r\n" % len(answer) + answer


def test_connections_are_reused(serving: Calling, calling: Calling) -> None:
    server = serving(lambda server, connection, request: connection.sendall(MODELS))

    async def five(zoo: AsyncZoo) -> None:
        for _ in range(5):
            await zoo.models()

    calling(
        None,
        lambda zoo: five(zoo) if isinstance(zoo, AsyncZoo) else [zoo.models() for _ in range(5)],
        base_url=server.url,
    )
    assert server.connections == 1


@pytest.mark.parametrize("before", [b"", HEAD + b"content-length: 12\r\n\r\n"], ids=["head", "body"])
def test_an_answer_that_drips_in_does_not_outlast_the_budget(serving: Calling, calling: Calling, before: bytes) -> None:
    """Each byte comes long before any limit of a single read; all of them would take 30 s and more."""
    dripped = HEAD if not before else CARDS * 20

    def drip(server: Server, connection: socket.socket, request: bytes) -> None:
        connection.sendall(before)
        for place in range(len(dripped)):
            connection.sendall(dripped[place : place + 1])
            time.sleep(0.2)

    server = serving(drip)
    with pytest.raises(errors.DeadlineExceeded, match=r"within 0\.7 s"):
        calling(None, lambda zoo: zoo.models(timeout_s=0.7), base_url=server.url)


def test_silence_ends_with_the_budget(serving: Calling, calling: Calling) -> None:
    server = serving(lambda server, connection, request: server.hold(connection))
    with pytest.raises(errors.DeadlineExceeded):
        calling(None, lambda zoo: zoo.models(timeout_s=0.2), base_url=server.url)
    assert server.left.acquire(timeout=PATIENCE_S), "the connection was closed"
    assert server.connections == 1


def test_a_connection_that_is_lost_before_the_answer_is_made_anew(serving: Calling, calling: Calling) -> None:
    def lose_the_first(server: Server, connection: socket.socket, request: bytes) -> None:
        if server.connections == 1:
            connection.shutdown(socket.SHUT_RDWR)
            return
        connection.sendall(MODELS)

    server = serving(lose_the_first)
    assert calling(None, lambda zoo: zoo.models(), base_url=server.url) == []
    assert server.connections == 2


def test_a_server_that_always_hangs_up_is_unreachable(serving: Calling, calling: Calling) -> None:
    server = serving(lambda server, connection, request: connection.shutdown(socket.SHUT_RDWR))
    with pytest.raises(errors.Unreachable, match="ended before an answer"):
        calling(None, lambda zoo: zoo.models(), base_url=server.url)
    assert server.connections == 3


def test_what_speaks_no_http_is_said_so(serving: Calling, calling: Calling) -> None:
    server = serving(lambda server, connection, request: connection.sendall(b"SSH-2.0-OpenSSH\r\n\r\n"))
    with pytest.raises(errors.CallFailed):
        calling(None, lambda zoo: zoo.models(), base_url=server.url)


def test_nobody_there(calling: Calling) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(errors.Unreachable, match=f"Nobody answers at {url}"):
        calling(None, lambda zoo: zoo.models(), base_url=url, retries=1)


def test_the_first_error_hangs_up_on_the_rest(serving: Calling, calling: Calling) -> None:
    """The parts that are in flight when another fails would be answered to nobody."""

    def fail_the_third(server: Server, connection: socket.socket, request: bytes) -> None:
        if json.loads(request)["input"][0] != "third":
            server.hold(connection)
            return
        for _ in range(2):
            server.asked.acquire(timeout=PATIENCE_S)
        connection.sendall(b"HTTP/1.1 400 Bad\r\nx-request-id: r\r\ncontent-length: 16\r\n\r\n" + b'{"message":"no"}')

    server = serving(fail_the_third)
    texts = ["first"] * 256 + ["second"] * 256 + ["third"] * 256
    with pytest.raises(errors.BadInput, match="no"):
        calling(None, lambda zoo: zoo.embed(texts, concurrency=3, timeout_s=600), base_url=server.url)
    for _ in range(2):
        assert server.left.acquire(timeout=PATIENCE_S), "a part that nobody needs any more was left"


async def test_a_cancelled_task_hangs_up(serving: Calling) -> None:
    server = serving(lambda server, connection, request: server.hold(connection))
    async with AsyncZoo(server.url, timeout_s=600) as zoo:
        task = asyncio.create_task(zoo.embed(["a"] * 1000))
        for _ in range(4):
            assert await asyncio.to_thread(server.asked.acquire, timeout=PATIENCE_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(4):
            assert await asyncio.to_thread(server.left.acquire, timeout=PATIENCE_S)


async def test_one_task_that_is_cancelled_leaves_the_others_alone(serving: Calling) -> None:
    go = threading.Event()

    def answer_later(server: Server, connection: socket.socket, request: bytes) -> None:
        go.wait(PATIENCE_S)
        connection.sendall(vectors_for(request))

    server = serving(answer_later)
    async with AsyncZoo(server.url) as zoo:
        tasks = [asyncio.create_task(zoo.embed("x" * size)) for size in (1, 2, 3)]
        for _ in tasks:
            assert await asyncio.to_thread(server.asked.acquire, timeout=PATIENCE_S)
        tasks[1].cancel()
        go.set()
        made = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(made[1], asyncio.CancelledError)
    assert [made[0].vectors, made[2].vectors] == [[[1.0]], [[3.0]]]


def test_a_stream_that_is_left_hangs_up(serving: Calling) -> None:
    server = serving(answer_the_first)
    with Zoo(server.url, timeout_s=600) as zoo:
        stream = zoo.embed_stream(TEXTS, concurrency=3)
        assert len(next(stream)) == 256
        for _ in range(3):
            assert server.asked.acquire(timeout=PATIENCE_S)
        stream.close()
        for _ in range(2):
            assert server.left.acquire(timeout=PATIENCE_S)


def answer_the_first(server: Server, connection: socket.socket, request: bytes) -> None:
    if json.loads(request)["input"][0] == "first":
        connection.sendall(vectors_for(request))
    else:
        server.hold(connection)


TEXTS = ["first"] * 256 + ["later"] * 1000


def test_a_stream_that_nobody_holds_any_more_hangs_up(serving: Calling) -> None:
    server = serving(answer_the_first)
    with Zoo(server.url, timeout_s=600) as zoo:
        stream = zoo.embed_stream(TEXTS, concurrency=3)
        next(stream)
        for _ in range(3):
            assert server.asked.acquire(timeout=PATIENCE_S)
        del stream
        gc.collect()
        for _ in range(2):
            assert server.left.acquire(timeout=PATIENCE_S)


async def test_a_stream_of_a_loop_that_nobody_holds_any_more_hangs_up(serving: Calling) -> None:
    server = serving(answer_the_first)
    async with AsyncZoo(server.url, timeout_s=600) as zoo:
        async for _ in zoo.embed_stream(TEXTS, concurrency=3):
            break
        gc.collect()
        for _ in range(2):
            assert await asyncio.to_thread(server.left.acquire, timeout=PATIENCE_S)


def test_a_stream_may_be_closed_twice_and_is_at_its_end_then(serving: Calling) -> None:
    server = serving(answer_the_first)
    with Zoo(server.url, timeout_s=600) as zoo:
        stream = zoo.embed_stream(TEXTS, concurrency=3)
        next(stream)
        stream.close()
        stream.close()
        assert list(stream) == []
        whole = zoo.embed_stream(["first"] * 300)
        assert [len(made) for made in whole] == [256, 44]
        assert list(whole) == []
        never_begun = zoo.embed_stream(TEXTS)
        never_begun.close()
        del never_begun


def test_a_stream_whose_client_is_closed_says_so(serving: Calling) -> None:
    server = serving(answer_the_first)
    zoo = Zoo(server.url, timeout_s=600)
    stream, unused = zoo.embed_stream(["first"] * 2000, concurrency=1), zoo.embed_stream(TEXTS)
    assert len(next(stream)) == 256
    zoo.close()
    for one in (stream, unused):
        with pytest.raises(errors.ClientClosed):
            next(one)


async def test_a_stream_of_a_loop_whose_client_is_closed_says_so(serving: Calling) -> None:
    server = serving(answer_the_first)
    zoo = AsyncZoo(server.url, timeout_s=600)
    stream, unused = zoo.embed_stream(["first"] * 2000, concurrency=1), zoo.embed_stream(TEXTS)
    assert len(await anext(stream)) == 256
    await zoo.aclose()
    for one in (stream, unused):
        with pytest.raises(errors.ClientClosed):
            await anext(one)


def test_a_client_that_is_closed_in_the_middle_of_a_call_fails_it_by_an_error_of_ours(serving: Calling) -> None:
    server = serving(lambda server, connection, request: server.hold(connection))
    zoo, failed = Zoo(server.url, timeout_s=0.5), []

    def ask() -> None:
        try:
            zoo.models()
        except errors.ZooserveError as error:
            failed.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    assert server.asked.acquire(timeout=PATIENCE_S)
    zoo.close()
    thread.join()
    assert isinstance(failed[0], errors.ClientClosed | errors.DeadlineExceeded)


LOOP = """
import signal, sys
from zooserve import Zoo
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are born without
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # whatever whoever started this had blocked
zoo = Zoo(sys.argv[1], timeout_s=600)
stream = zoo.embed_stream(["first"] * 256 + ["later"] * 1000, concurrency=3)  # outlives the loop, and the error
for made in stream:
    print(len(made), flush=True)
    exec(sys.argv[2])
"""


@pytest.mark.parametrize(
    ("then", "ends_with"), [("", -signal.SIGINT), ("input(); raise RuntimeError", 1), ("input()", -2)]
)
def test_a_program_that_breaks_off_its_loop_ends_at_once(serving: Calling, then: str, ends_with: int) -> None:
    """By Ctrl-C while it waits for the next part, by its own error, by Ctrl-C between two: nobody is waited for."""
    server = serving(answer_the_first)
    command = [sys.executable, "-W", "error", "-c", LOOP, server.url, then]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        assert program.stdout.readline() == b"256\n"
        for _ in range(3):
            assert server.asked.acquire(timeout=PATIENCE_S)
        if ends_with == 1:
            assert program.stdin is not None
            program.stdin.write(b"\n")
            program.stdin.flush()
        else:
            program.send_signal(signal.SIGINT)
        assert program.wait(PATIENCE_S) == ends_with
        told = program.stderr.read().decode()
    assert told.count("Traceback") == 1, told
    for _ in range(2):
        assert server.left.acquire(timeout=PATIENCE_S)


def test_parts_run_side_by_side_and_no_more_than_asked_for(serving: Calling, calling: Calling) -> None:
    running, most, lock, full = 0, 0, threading.Lock(), threading.Barrier(3)

    def meet(server: Server, connection: socket.socket, request: bytes) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        full.wait(PATIENCE_S)
        with lock:
            running -= 1
        connection.sendall(vectors_for(request))

    server = serving(meet)
    made = calling(None, lambda zoo: zoo.embed(["a"] * 6 * 256, concurrency=3), base_url=server.url)
    assert (len(made), most) == (6 * 256, 3)


def test_a_client_outlives_its_event_loop(serving: Calling) -> None:
    server = serving(lambda server, connection, request: connection.sendall(MODELS + b""))
    zoo = AsyncZoo(server.url)

    async def ask_and_close() -> list[Any]:
        try:
            return await zoo.models()
        finally:
            await zoo._http._connections.aclose()  # or its sockets warn that nobody closed them

    assert asyncio.run(ask_and_close()) == []
    assert asyncio.run(ask_and_close()) == []
    asyncio.run(zoo.aclose())
    assert server.connections == 2


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_makes_connections_of_its_own(serving: Calling) -> None:
    def behave(server: Server, connection: socket.socket, body: bytes) -> None:
        connection.sendall(MODELS)

    server = serving(behave)
    with Zoo(server.url) as zoo:
        zoo.models()
        child = os.fork()
        if child == 0:
            try:
                zoo.models()
                zoo.models()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert server.connections == 2
        zoo.models()
    assert server.connections == 2


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_a_vector_of_numbers_that_are_none_is_refused(serving: Calling, calling: Calling, number: str) -> None:
    vector = base64.b64encode(struct.pack("<2f", 0.5, float(number))).decode()
    body = json.dumps({"data": [{"index": 0, "embedding": vector}], "usage": {"prompt_tokens": 1}}).encode()

    def behave(server: Server, connection: socket.socket, request: bytes) -> None:
        connection.sendall(HEAD + f"content-length: {len(body)}\r\n\r\n".encode() + body)

    with pytest.raises(errors.UnreadableAnswer, match="not finite"):
        calling(None, lambda zoo: zoo.embed("a duck"), base_url=serving(behave).url)
