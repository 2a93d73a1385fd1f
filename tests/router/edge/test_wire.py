"""The connection pool against a server that sends exactly these bytes."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import numpy as np
import orjson
import pytest

from zooserve.errors import BackendFailed, BackendUnavailable, DeadlineExceeded, Overloaded
from zooserve.triton.tensors import text_tensor
from zooserve_router.backends.wire import ConnectionPool, Unanswered
from zooserve_router.backends.zoo import HEADER_LENGTH, Inference, ZooBackend
from zooserve_router.stages import Ensemble, Stage, Step

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


@dataclass(frozen=True)
class InTwo:
    """An answer in two writes, the second on its own turn; None hangs up instead."""

    first: bytes
    second: bytes | None


@dataclass
class ScriptedServer:
    """Answers each request with the next item of its script; None hangs up, an Event is waited for first."""

    script: list[bytes | InTwo | asyncio.Event | None]
    port: int = 0
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(length))
                said = self.script.pop(0)
                if isinstance(said, asyncio.Event):
                    await said.wait()
                    said = self.script.pop(0)
                if isinstance(said, InTwo):
                    writer.write(said.first)
                    await writer.drain()
                    await asyncio.sleep(0.001)
                    said = said.second
                if said is None:
                    return
                assert isinstance(said, bytes)
                writer.write(said)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    scripted = ScriptedServer([])
    listening = await asyncio.start_server(scripted.serve, "127.0.0.1", 0)
    scripted.port = listening.sockets[0].getsockname()[1]
    yield scripted
    listening.close()


@pytest.fixture
async def pool(server: ScriptedServer) -> AsyncIterator[ConnectionPool]:
    made = ConnectionPool("127.0.0.1", server.port)
    yield made
    made.close()


@pytest.fixture
def zoo(pool: ConnectionPool) -> ZooBackend:
    return ZooBackend(pool)


def asking(timeout_s: float = 5.0) -> Inference:
    return Inference("embed", (text_tensor("text", ["hi"]),), ("embedding",), "req_1", timeout_s)


def inference_answer() -> bytes:
    output = {"name": "embedding", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}
    header = orjson.dumps({"model_name": "embed", "model_version": "1", "outputs": [output]})
    body = header + np.array([1, 2], dtype="<f4").tobytes()
    lengths = f"Content-Length: {len(body)}\r\nInference-Header-Content-Length: {len(header)}"
    return f"HTTP/1.1 200 OK\r\n{lengths}\r\n\r\n".encode() + body


def failure(status: int, text: str) -> bytes:
    body = orjson.dumps({"error": text})
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def test_a_connection_is_kept_between_exchanges(server, pool):
    server.script = [OK] * 3
    answers = [await pool.exchange("POST", "/x", {"a": "b"}, b"body") for _ in range(3)]
    assert [answer.body for answer in answers] == [b"hi"] * 3
    assert server.connections == 1
    assert server.requests[0].startswith(b"POST /x HTTP/1.1\r\n")
    assert b"accept-encoding: identity\r\n" in server.requests[0]
    assert b"\r\na: b\r\n" in server.requests[0]
    assert server.requests[0].endswith(b"\r\n\r\nbody")


async def test_exchanges_at_once_use_connections_of_their_own(server, pool):
    server.script = [OK] * 8
    await asyncio.gather(*(pool.exchange("GET", "/x", {}) for _ in range(8)))
    assert server.connections == 8


async def test_a_server_that_closes_is_not_asked_on_that_connection_again(server, pool):
    server.script = [b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi", OK]
    await pool.exchange("GET", "/x", {})
    await pool.exchange("GET", "/x", {})
    assert server.connections == 2


@pytest.mark.parametrize("cut", range(1, 80, 7))
async def test_an_answer_in_pieces_is_put_together(server, pool, cut):
    whole = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n1\r\n!\r\n0\r\n\r\n"
    server.script = [InTwo(whole[:cut], whole[cut:])]
    assert (await pool.exchange("GET", "/x", {})).body == b"hi!"


async def test_hanging_up_before_an_answer_and_within_it_are_told_apart(server, pool):
    server.script = [None]
    with pytest.raises(Unanswered):
        await pool.exchange("GET", "/x", {})
    server.script = [InTwo(b"HTTP/1.1 200 OK\r\nContent-Le", None)]
    with pytest.raises(ConnectionError) as broken:
        await pool.exchange("GET", "/x", {})
    assert not isinstance(broken.value, Unanswered)


async def test_what_is_no_http_ends_the_connection(server, pool):
    server.script = [b"SSH-2.0-OpenSSH\r\n"]
    with pytest.raises(ConnectionError, match="not an HTTP answer"):
        await pool.exchange("GET", "/x", {})


async def test_a_cancelled_caller_does_not_leave_its_answer_to_the_next(server, pool):
    gate = asyncio.Event()
    server.script = [gate, b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate", OK]
    asked = asyncio.create_task(pool.exchange("GET", "/late", {}))
    while not server.requests:  # noqa: ASYNC110 (the server's turn)
        await asyncio.sleep(0)
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    gate.set()
    await asyncio.sleep(0.01)
    assert (await pool.exchange("GET", "/x", {})).body == b"hi"


async def test_an_inference_is_sent_and_read_in_binary(server, zoo):
    server.script = [inference_answer()]
    answer = await zoo.infer(asking(timeout_s=2.5))
    assert answer.outputs["embedding"].tolist() == [[1.0, 2.0]]
    assert (answer.model, answer.version) == ("embed", "1")
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    length = int(head.lower().split(HEADER_LENGTH.encode() + b": ")[1].split(b"\r\n")[0])
    sent = orjson.loads(body[:length])
    assert sent["parameters"] == {"timeout": 2_000_000}  # the rest is for learning where it waited
    assert sent["outputs"] == [{"name": "embedding", "parameters": {"binary_data": True}}]
    assert body[length:] == b"\2\0\0\0hi"


async def test_a_connection_that_died_while_idle_costs_one_more_try(server, zoo):
    server.script = [inference_answer(), None, inference_answer()]
    await zoo.infer(asking())
    await zoo.infer(asking())
    assert server.connections == 2


async def test_a_second_hang_up_is_unavailable(server, zoo):
    server.script = [None, None]
    with pytest.raises(BackendUnavailable):
        await zoo.infer(asking())


async def test_an_answer_that_breaks_off_is_not_asked_for_again(server, zoo):
    server.script = [InTwo(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhalf", None), inference_answer()]
    with pytest.raises(BackendUnavailable):
        await zoo.infer(asking())
    assert len(server.requests) == 1


async def test_a_zoo_that_never_answers_is_given_up_after_the_deadline_and_a_grace(server, pool):
    server.script = [asyncio.Event()]
    with pytest.raises(DeadlineExceeded):
        await ZooBackend(pool, grace_s=0.02).infer(asking(timeout_s=0.01))


async def test_nobody_listening_is_unavailable():
    listening = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    listening.close()
    await listening.wait_closed()
    with pytest.raises(BackendUnavailable, match="is it up"):
        await ZooBackend(ConnectionPool("127.0.0.1", port)).infer(asking())


async def test_a_zoo_that_answers_nonsense_has_failed(server, zoo):
    server.script = [OK]
    with pytest.raises(BackendFailed):
        await zoo.infer(asking())


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (503, "[request id: r] Exceeds maximum queue size", Overloaded),
        (503, "[request id: r] Request timeout expired", DeadlineExceeded),
        (400, "Request for unknown model: 'embed' is not found", BackendUnavailable),
        (400, "Request for unknown model: 'embed' has no available versions", BackendUnavailable),
        (500, "Stub process 'embed_tokenizer_0' is not healthy.", BackendUnavailable),
        (500, "embed_encoder version 1: out of memory", BackendFailed),
    ],
)
async def test_tritons_failures_are_told_apart_by_their_text(server, zoo, status, text, kind):
    server.script = [failure(status, text)]
    with pytest.raises(kind):
        await zoo.infer(asking())


GONE = failure(400, "Request for unknown model: 'embed' has no available versions")
EMBED = Ensemble("embed", (Step(Stage("embed_tokenizer", "1")), Step(Stage("embed_encoder", "1"))))


async def test_the_stage_that_took_its_ensemble_down_is_found_in_the_index(server, pool):
    index = orjson.dumps(
        [
            {"name": "embed_tokenizer", "state": "READY"},
            {"name": "embed_encoder", "state": "UNAVAILABLE", "reason": "there is no model.onnx"},
        ]
    )
    server.script = [GONE, b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(index) + index]
    with pytest.raises(BackendUnavailable, match=r"there is no model\.onnx") as gone:
        await ZooBackend(pool, ensembles={"embed": EMBED}).infer(asking())
    assert gone.value.failed is not None
    assert gone.value.failed.label == "embed_encoder/1"


async def test_an_index_that_does_not_come_holds_nobody_up(server, pool):
    server.script = [GONE, asyncio.Event()]
    async with asyncio.timeout(5):
        with pytest.raises(BackendUnavailable, match="a stage that is not known"):
            await ZooBackend(pool, ensembles={"embed": EMBED}).infer(asking())
    assert len(server.requests) == 2


async def test_of_an_endless_failure_only_the_beginning_is_told(server, zoo):
    server.script = [failure(500, "embed version 1: " + "x" * 1_000_000)]
    with pytest.raises(BackendFailed) as failed:
        await zoo.infer(asking())
    assert len(failed.value.message) < 5000


async def test_a_failure_that_is_not_json_is_quoted(server, zoo):
    server.script = [b"HTTP/1.1 502 X\r\nContent-Length: 17\r\n\r\n<html>bad gateway"]
    with pytest.raises(BackendFailed, match="gateway"):
        await zoo.infer(asking())


async def test_an_answer_without_an_output_that_was_asked_for_has_failed(server, zoo):
    server.script = [inference_answer()]
    wanted = Inference("embed", (text_tensor("text", ["hi"]),), ("embedding", "tokens"), "req_1", 5.0)
    with pytest.raises(BackendFailed, match="it answered without tokens"):
        await zoo.infer(wanted)
