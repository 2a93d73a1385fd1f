"""The stream that chat contracts on Triton share: servers that refuse, and servers that say nothing."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from tritonclient.utils import InferenceServerException

from zooserve.errors import BackendFailed, BackendUnavailable, DeadlineExceeded, Overloaded
from zooserve_router.backends.triton_stream import TritonStream, tensor, translated_errors


@pytest.fixture
async def mute() -> AsyncIterator[str]:
    """The address of something that takes connections and never speaks."""
    held: list[asyncio.StreamWriter] = []

    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)

    server = await asyncio.start_server(keep, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    yield f"{host}:{port}"
    for writer in held:
        writer.close()
    server.close()
    await server.wait_closed()


async def test_a_server_that_never_speaks_is_unavailable_long_before_the_deadline(mute: str) -> None:
    stream = TritonStream(mute, "model")
    with pytest.raises(BackendUnavailable, match="timed out"):
        await anext(stream.responses([tensor("text_input", "BYTES", [b"Hi"])], timeout_s=15))
    await stream.close()


async def test_a_leaf_is_reached_past_a_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC would ask it for a leaf on this very machine."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    stream = TritonStream(f"127.0.0.1:{port}", "model")
    with pytest.raises(BackendUnavailable, match="Method not found"):  # somebody is there, and is no Triton
        await stream.configuration(5)
    await stream.close()
    await server.stop(None)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("StatusCode.UNAVAILABLE", BackendUnavailable),
        ("StatusCode.DEADLINE_EXCEEDED", DeadlineExceeded),
        ("StatusCode.RESOURCE_EXHAUSTED", Overloaded),
        ("StatusCode.INTERNAL", BackendFailed),
        (None, BackendFailed),
    ],
)
def test_a_call_that_is_no_stream_fails_by_its_code(status: str | None, expected: type[Exception]) -> None:
    with pytest.raises(expected), translated_errors("model", "here:1"):
        raise InferenceServerException("why", status=status)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Error generating stream: 'unknown model' is not found in the schema", BackendFailed),
        ("Model is unavailable due to unhealthy vLLM engine", BackendUnavailable),
    ],
)
def test_what_vllm_quotes_of_a_request_is_no_doubt_of_the_model(message: str, expected: type[Exception]) -> None:
    with pytest.raises(expected), translated_errors("model", "here:1"):
        raise InferenceServerException(message)


def test_a_tensor_has_the_shape_that_is_asked_for() -> None:
    assert tensor("max_tokens", "INT32", [7]).shape() == [1]
    assert tensor("stop_words", "BYTES", [b"a", b"b"], (1, 2)).shape() == [1, 2]
